package callers

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/cmd/internal/preauth"
)

// A caller whose credential has expired is served without new private keys while no certificate can be issued. Once
// certificates can be issued again, its stream ends after a grace, unless it shows this process a newer credential, and
// so does a connection without calls. ca/expiry has the times; here it is queried.
// Promise: security-workloads.md#identity-and-private-keys, security-workloads.md#renewals-and-revocation
func TestCallersWhoseCredentialEnds(t *testing.T) {
	for name, renews := range map[string]bool{"a newer one is shown": true, "none is": false} {
		synctest.Test(t, func(t *testing.T) {
			c := Config{DataDir: t.TempDir(), TrustDomain: "cluster.local", Audiences: []string{"istio-ca"}, Required: true, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
			k, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			issuer, err := attest.Local(c.DataDir)
			if err != nil {
				t.Fatal(err)
			}
			shows := func() attest.Caller {
				t.Helper()
				token, _, err := issuer.Mint("shop", "client", "istio-ca", time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				who, err := k.Authenticate(over(t, token))
				if err != nil {
					t.Fatal(err)
				}
				return who
			}
			who := shows()
			var closed atomic.Bool
			var connection preauth.Holder
			connection, err = k.assign(who, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 4711})(func() {
				closed.Store(true)
				connection.Leave()
			})
			if err != nil {
				t.Fatal(err)
			}
			var issuing atomic.Bool
			issuing.Store(true)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- k.Expiry().Run(ctx, issuing.Load, func() { k.Recheck() }) }()
			expect := func(when string, after time.Duration, served, keys, again bool) {
				t.Helper()
				time.Sleep(after)
				synctest.Wait()
				may, come := k.MayHaveKeys(who)
				if err := k.Refused(who); (err == nil) != served || closed.Load() == served || may != keys || !may && come != again {
					t.Errorf("%s, %s: refused %v, its connection is closed %v, may have keys %v, comes again %v", name, when, err, closed.Load(), may, come)
				}
			}
			expect("before its end", 59*time.Minute, true, true, false)
			issuing.Store(false)
			expect("while none can be had", 10*time.Hour, true, false, false)
			issuing.Store(true)
			expect("when they can be had again", time.Minute, true, false, true)
			if renews {
				shows()
			}
			expect("after the grace", 20*time.Minute, renews, renews, true)
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}
