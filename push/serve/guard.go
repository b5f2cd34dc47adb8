package serve

import (
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/obs"
)

// A stream is read by its handler's goroutine, sent to by workers that all streams share, and looked at by watch. A panic in any
// of them ends the stream that it was about, and no other; locks and budgets of that stream are released.

// rescue is deferred where a goroutine that other streams need works for a joined one: where that panics, the stream is closed.
func (st *stream) rescue() {
	fault := recover()
	if fault == nil {
		return
	}
	_ = st.srv.cfg.Crashes.Caught(crash.RPC, fault, obs.KeyNode, st.client.ID) // counted and logged; the client is not told
	st.stop()
	st.kill(crash.Ended)
}
