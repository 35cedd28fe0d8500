"""What many, slow and hostile users do to a server: to its speed, memory and answers."""
