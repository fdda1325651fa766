function matrix = readTriples(path)
% The sparse matrix of a file of official text: row, column and value on each line, from 1.
  matrix = spconvert(dlmread(path, '\t'));
end
