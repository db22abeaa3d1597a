"""Before the second and third block of docs/megatron.md."""
import pagestash.megatron
