"""The process that sends metrics on: TensorBoard, Prometheus, CloudWatch, Weights & Biases, MLflow."""
