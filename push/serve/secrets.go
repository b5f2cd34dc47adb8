package serve

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/xds"
)

// SecretSubscriber is implemented by a Proxy whose Set contains only Secrets that are subscribed by name. Secrets are
// expensive to build, and few of them are requested.
type SecretSubscriber interface {
	// SubscribeSecrets adds and drops subscriptions by resource name. Each of the two lists may be nil. It waits until
	// Set contains the added Secrets that are available. The wait ends after about a second, or when ctx ends. A Secret
	// that becomes available later is added to Set then, and the function moved of Join is called. The caller is the
	// goroutine that reads the stream. The implementation may keep the slices.
	SubscribeSecrets(ctx context.Context, add, drop []string)
}

// These bound the Secrets that one stream may request. Kubernetes' names of Secrets and namespaces have at most 253
// bytes.
const (
	maxSecretNames = 4096 // number of names
	maxSecretName  = 640  // length of a name in bytes
)

// subscribeSecrets subscribes the proxy to the Secrets of a request, before the request is processed. The caller must
// call the returned function after the request was processed. That function drops the subscriptions to Secrets that
// are no longer requested. If they were dropped earlier, the client would be sent the removal of these Secrets. Only
// the reading goroutine calls the two functions.
func (st *stream) subscribeSecrets(ctx context.Context, m delta.Message) (after func()) {
	subscriber, ok := st.proxy.(SecretSubscriber)
	if m.Type == xds.Secret || m.Type == xds.Extension { // some extensions contain credentials
		st.secrets.Store(true)
	}
	if m.Type != xds.Secret {
		return func() {}
	}
	if !ok {
		return func() {}
	}
	var add, drop []string
	listed := map[string]bool{}
	for name := range names(m.Subscribe) {
		had := st.secretNames[name]
		if !had && (len(st.secretNames)+len(add) >= maxSecretNames || len(name) > maxSecretName) {
			continue
		}
		name = strings.Clone(name)
		if listed[name] = true; !had {
			add = append(add, name)
		}
	}
	if st.sotw { // the request lists all wanted Secrets
		for name := range st.secretNames {
			if !listed[name] {
				drop = append(drop, name)
			}
		}
	} else {
		for name := range names(m.Unsubscribe) {
			if st.secretNames[name] && !listed[name] {
				drop = append(drop, strings.Clone(name))
			}
		}
	}
	if len(add) > 0 && !st.mayHaveKeys() {
		add = nil
	}
	if st.secretNames == nil {
		st.secretNames = map[string]bool{}
	}
	for _, name := range add {
		st.secretNames[name] = true
	}
	for _, name := range drop {
		delete(st.secretNames, name)
	}
	if len(add) > 0 {
		subscriber.SubscribeSecrets(ctx, add, nil)
		st.retarget() // the client's list of held resources is compared with the new set
	}
	return func() {
		if len(drop) > 0 {
			subscriber.SubscribeSecrets(ctx, nil, drop)
		}
	}
}

// mayHaveKeys reports whether the stream may request more Secrets. If not, and if the caller can obtain a newer
// credential, mayHaveKeys ends the stream.
func (st *stream) mayHaveKeys() bool {
	may, again := st.credentialAllows()
	if may {
		return true
	}
	st.noKeys(again, "the stream gets no further Secrets")
	return false
}

// credentialAllows reports whether the caller's credential permits Secrets. If not, the second result reports whether
// the caller can obtain a newer credential.
func (st *stream) credentialAllows() (may, again bool) {
	if st.client.Caller.ID.IsZero() || st.srv.cfg.MayHaveKeys == nil {
		return true, false
	}
	return st.srv.cfg.MayHaveKeys(st.client.Caller)
}

// noKeys logs that Secrets are withheld because the credential has expired. If again is true, noKeys ends the stream,
// so that the client reconnects with a newer credential.
func (st *stream) noKeys(again bool, what string) {
	err := errors.New("the credential has expired: " + what)
	st.srv.clients.Warn("Secrets are withheld from a proxy whose credential has expired", "ended", st.about(err)...)
	if again {
		st.kill(status.Error(codes.Unauthenticated, err.Error()))
	}
}

// retryHeldSecrets requests a turn for new versions of Secrets that were held back, if the caller may have Secrets
// again. The caller may if its identity has presented a newer credential on another stream.
func (st *stream) retryHeldSecrets() {
	if !st.takeSecretsHeld() {
		return
	}
	may, again := st.credentialAllows()
	if !may {
		st.holdSecrets()
		st.noKeys(again, "new versions of Secrets wait for a newer credential")
		return
	}
	st.mark(fanout.Answers, time.Now())
}

// takeSecretsHeld reports whether new versions of Secrets were held back since the last call.
func (x *exchange) takeSecretsHeld() (held bool) {
	x.locked(func() { held, x.secretsHeld = x.secretsHeld, false })
	return held
}

// holdSecrets records that new versions of Secrets are still held back.
func (x *exchange) holdSecrets() { x.locked(func() { x.secretsHeld = true }) }

// names returns a sequence of names. For nil it returns an empty sequence.
func names(all iter.Seq[string]) iter.Seq[string] {
	if all == nil {
		return func(func(string) bool) {}
	}
	return all
}
