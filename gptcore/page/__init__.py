"""The tabs of the page. Imports gptcore only; never torch."""
