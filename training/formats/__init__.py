"""What people have their texts and conversations in: places, compression, kinds of files, rows."""
