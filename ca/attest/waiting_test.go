package attest

import (
	"errors"
	"testing"
	"testing/synctest"
)

// If keys are known, a bounded number of tokens that name another key waits for an endpoint that does not answer:
// otherwise they would occupy the places of tokens that can be verified.
func TestFewWaitForUnknownKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &endpoint{}
		e.set("/keys", jwks(jwk("e", ecKey())))
		keys := e.keys(t)
		v := verifier(t, keys)
		if err := keys.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.mu.Lock()
		e.hold = make(chan struct{})
		e.mu.Unlock()
		bad, errs := sign(newEC(), "x", bound(nil)), make(chan error, 50)
		for range cap(errs) {
			go func() { _, err := v.Verify(t.Context(), bad); errs <- err }()
		}
		synctest.Wait()
		if waiting := cap(errs) - len(errs); waiting != maxWaiting {
			t.Errorf("%d wait", waiting)
		}
		if _, err := v.Verify(t.Context(), sign(ecKey(), "e", bound(nil))); err != nil {
			t.Error(err)
		}
		close(e.hold)
		for range cap(errs) {
			if err := <-errs; !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknownKey) {
				t.Error(err)
			}
		}
		synctest.Wait()
		if n := keys.waiting.Load(); n != 0 {
			t.Errorf("%d count as waiting", n)
		}
	})
}
