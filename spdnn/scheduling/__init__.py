"""The inference scheduled over devices: graphs of tasks, the engines that run them, and the model of their cost."""
