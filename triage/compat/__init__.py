"""Other services' protocols, answered from Faultline's own diagnoses."""
