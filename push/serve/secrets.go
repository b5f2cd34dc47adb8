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

// SecretSubscriber is a Proxy that has Secrets made for it by name, because they are dear to make and few are wanted. Ask returns when
// Set says what there is of them; it may block for a moment.
type SecretSubscriber interface {
	SubscribeSecrets(ctx context.Context, add, drop []string)
}

// Bounds of the Secrets that one stream may ask for. Names of Secrets and namespaces have 253 bytes at most.
const (
	maxSecretNames = 4096
	maxSecretName  = 640
)

// subscribeSecrets subscribes the view to the Secrets that a request is about, before it is answered. What it returns drops those that it is
// not about any more, after it was taken in: else their absence would be answered. Only the reading goroutine calls these.
func (st *stream) subscribeSecrets(ctx context.Context, m delta.Message) (after func()) {
	asker, ok := st.proxy.(SecretSubscriber)
	if m.Type == xds.Secret || m.Type == xds.Extension { // some of the latter have credentials
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
	if st.sotw { // lists all that it wants
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
		st.retarget() // what the client says that it holds is compared with what there is
	}
	return func() {
		if len(drop) > 0 {
			asker.SubscribeSecrets(ctx, nil, drop)
		}
	}
}

// mayHaveKeys says whether the stream may ask for more Secrets; where a newer credential would help, it ends.
func (st *stream) mayHaveKeys() bool {
	may, again := st.credentialAllows()
	if may {
		return true
	}
	st.noKeys(again, "no Secrets beyond those that the stream had")
	return false
}

// credentialAllows says whether the caller's credential is in force as far as Secrets need one, and where it is not, whether a newer
// one can be had.
func (st *stream) credentialAllows() (may, again bool) {
	if st.client.Caller.ID.IsZero() || st.srv.cfg.MayHaveKeys == nil {
		return true, false
	}
	return st.srv.cfg.MayHaveKeys(st.client.Caller)
}

// noKeys reports that Secrets are withheld because the credential has ended, and ends the stream where a newer one can be had.
func (st *stream) noKeys(again bool, what string) {
	err := errors.New("the credential has ended: " + what)
	st.srv.clients.Warn("Secrets are withheld from a proxy whose credential has expired", "ended", st.about(err)...)
	if again {
		st.kill(status.Error(codes.Unauthenticated, err.Error()))
	}
}

// heldKeys looks again at new versions of Secrets that were held back: they are sent where the identity has shown a newer
// credential by now.
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

// takeSecretsHeld says whether new versions of Secrets were held back since it was asked last.
func (x *exchange) takeSecretsHeld() (held bool) {
	x.locked(func() { held, x.secretsHeld = x.secretsHeld, false })
	return held
}

// holdSecrets is the event that they still are.
func (x *exchange) holdSecrets() { x.locked(func() { x.secretsHeld = true }) }

// names is a list that may be nil.
func names(all iter.Seq[string]) iter.Seq[string] {
	if all == nil {
		return func(func(string) bool) {}
	}
	return all
}
