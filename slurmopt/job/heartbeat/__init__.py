"""What a rank reports while it lives: its step, its metrics, signs of life."""
