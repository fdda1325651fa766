function y = inferenceReLUvec(weights, bias, y)
% The last rows of a network by its specification: each nonzero sum gets the bias, and is limited to 0 and 32.
  for k = 1:numel(weights)
    [input, neuron, sums] = find(y * weights{k});
    y = sparse(input, neuron, max(0, min(32, sums + bias{k})), rows(y), columns(weights{k}));
  end
end
