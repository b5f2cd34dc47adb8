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

// SecretSubscriber is a Proxy whose Secrets are made by name, because they are expensive and few are requested.
// SubscribeSecrets returns when Set contains the Secrets that exist. It may block briefly.
type SecretSubscriber interface {
	SubscribeSecrets(ctx context.Context, add, drop []string)
}

// Bounds of the Secrets that one stream may request. Names of Secrets and namespaces have 253 bytes at most.
const (
	maxSecretNames = 4096
	maxSecretName  = 640
)

// subscribeSecrets subscribes the view to the Secrets of a request, before the request is answered. The returned
// function drops the Secrets that are no longer requested. It is called after the request was processed, because
// otherwise their absence would be reported to the client. Only the reading goroutine calls both.
func (st *stream) subscribeSecrets(ctx context.Context, m delta.Message) (after func()) {
	asker, ok := st.proxy.(SecretSubscriber)
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
		asked := st.secretNames[name]
		if !asked && (len(st.secretNames)+len(add) >= maxSecretNames || len(name) > maxSecretName) {
			continue
		}
		name = strings.Clone(name)
		if listed[name] = true; !asked {
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
		asker.SubscribeSecrets(ctx, add, nil)
		st.retarget() // the client's list of held resources is compared with the new set
	}
	return func() {
		if len(drop) > 0 {
			asker.SubscribeSecrets(ctx, nil, drop)
		}
	}
}

// mayHaveKeys reports whether the stream may request more Secrets. If a newer credential would help, it ends the
// stream.
func (st *stream) mayHaveKeys() bool {
	may, again := st.credentialAllows()
	if may {
		return true
	}
	st.noKeys(again, "no Secrets beyond those that the stream had")
	return false
}

// credentialAllows reports whether the caller's credential is in force for Secrets, and if not, whether a newer one can
// be obtained.
func (st *stream) credentialAllows() (may, again bool) {
	if st.client.Caller.ID.IsZero() || st.srv.cfg.MayHaveKeys == nil {
		return true, false
	}
	return st.srv.cfg.MayHaveKeys(st.client.Caller)
}

// noKeys logs that Secrets are withheld because the credential has ended, and ends the stream if a newer one can be
// obtained.
func (st *stream) noKeys(again bool, what string) {
	err := errors.New("the credential has ended: " + what)
	st.srv.clients.Warn("Secrets are withheld from a proxy whose credential has expired", "ended", st.about(err)...)
	if again {
		st.kill(status.Error(codes.Unauthenticated, err.Error()))
	}
}

// heldKeys retries new versions of Secrets that were held back. They are sent if the identity has shown a newer
// credential meanwhile.
func (st *stream) heldKeys() {
	if !st.takeSecretsHeld() {
		return
	}
	may, again := st.credentialAllows()
	if !may {
		st.holdSecrets()
		st.noKeys(again, "new versions of Secrets wait for a newer one")
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

// names returns a list, which may be nil, as a sequence.
func names(all iter.Seq[string]) iter.Seq[string] {
	if all == nil {
		return func(func(string) bool) {}
	}
	return all
}
