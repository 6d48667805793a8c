"""widthwise: one model, every width."""
