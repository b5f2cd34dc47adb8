package serve

import (
	"navarch.io/navarch/store/crash"
	"navarch.io/navarch/store/obs"
)

// Three kinds of goroutines work for a stream: its handler reads, workers send, and Server.watch checks deadlines. All
// streams share the workers and the goroutine of Server.watch. A panic in one of these goroutines ends only the stream
// for which the goroutine works, and releases the stream's locks and budgets.

// rescue recovers from a panic, and then closes the stream. A shared goroutine defers rescue while it works for a
// joined stream.
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
