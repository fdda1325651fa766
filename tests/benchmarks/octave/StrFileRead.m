function text = StrFileRead(path)
% The text of a file.
  text = fileread(path);
end
