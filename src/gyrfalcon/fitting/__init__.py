"""What every fit is made of: data, centers and operator, one session around any solver."""
