package proxy

import (
	"time"
)

// post makes the proxy's goroutine run f soon; false: the goroutine has ended.
func (s *sim) post(f func()) bool {
	s.postMu.Lock()
	if s.ended {
		s.postMu.Unlock()
		return false
	}
	s.posted = append(s.posted, f)
	if s.conn != nil {
		_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // fails if it is closed, and then the goroutine is awake
	}
	s.postMu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return true
}

// unpost runs the remaining posted functions; later ones are refused.
func (s *sim) unpost() {
	s.postMu.Lock()
	todo := s.posted
	s.posted, s.ended = nil, true
	s.postMu.Unlock()
	for _, f := range todo {
		f()
	}
}

// interrupt makes a blocked write fail.
func (s *sim) interrupt() {
	s.postMu.Lock()
	defer s.postMu.Unlock()
	if s.conn != nil {
		_ = s.conn.SetWriteDeadline(time.Unix(1, 0)) // fails if it is closed already
	}
}

// after posts f after a delay.
func (s *sim) after(d time.Duration, f func()) *time.Timer {
	if d <= 0 {
		s.post(f)
		return nil
	}
	return time.AfterFunc(d, func() { s.post(f) })
}

// work runs posted functions. An error means that the session must end.
func (s *sim) work() error {
	for {
		s.postMu.Lock()
		todo := s.posted
		s.posted = nil
		if len(todo) > 0 && s.conn != nil {
			_ = s.conn.SetReadDeadline(time.Time{})
		}
		s.postMu.Unlock()
		for _, f := range todo {
			f()
		}
		if s.quit || s.drop {
			return errQuit
		}
		if len(todo) == 0 {
			return nil
		}
	}
}

// block runs a call that may wait, and releases mu meanwhile.
func (s *sim) block(call func() (int, error)) (int, error) {
	s.mu.Unlock()
	defer s.mu.Lock()
	return call()
}

// sleep waits for d, or until a function is posted; a negative d has no limit.
func (s *sim) sleep(d time.Duration) {
	s.mu.Unlock()
	defer s.mu.Lock()
	var timer <-chan time.Time
	if d >= 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-timer:
	case <-s.wake:
	}
}

// allowance returns how many of n bytes a proxy may read now; 0: it must pause.
func (s *sim) allowance(n int) int {
	switch {
	case s.shape.StopReading && s.joined:
		return 0
	case s.shape.ReadRate <= 0:
		return n
	case time.Now().Before(s.lull):
		return 0
	}
	return min(n, max(s.shape.ReadRate/10, 1))
}

func (s *sim) consumed(n int) {
	if s.shape.ReadRate > 0 {
		s.lull = time.Now().Add(time.Second * time.Duration(n) / time.Duration(s.shape.ReadRate))
	}
}

func (s *sim) pause() {
	if s.shape.StopReading && s.joined {
		s.sleep(-1)
		return
	}
	s.sleep(max(time.Until(s.lull), 0))
}
