package serve

import (
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/obs"
)

// A stream is read by its handler's goroutine, sent to by workers that all streams share, and checked by watch. A panic
// in any of them ends only the stream that it was about, and releases its locks and budgets.

// rescue is deferred in goroutines that other streams need while they work for a joined stream. After a panic it closes
// that stream.
func (st *stream) rescue() {
	fault := recover()
	if fault == nil {
		return
	}
	// The panic is counted and logged; the client receives no details.
	_ = st.srv.cfg.Crashes.Caught(crash.RPC, fault, obs.KeyNode, st.client.ID)
	st.stop()
	st.kill(crash.Ended)
}
