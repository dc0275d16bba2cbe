"""The screens of the board, drawn with Textual, and the threads and processes behind them."""
