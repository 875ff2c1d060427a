package outbox

// Waiting returns how many calls stand in line behind the one that writes.
func (s *Store) Waiting() int { return s.db.Waiting() }
