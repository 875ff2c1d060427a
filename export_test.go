package outbox

// Waiting returns how many calls stand in line behind the one that writes.
func (s *Store) Waiting() int {
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	return len(s.turns.waiting)
}
