package plan

import (
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// joinIdentity connects a view (the configuration that equal proxies share) with the Secret subscriptions of its
// identity (service account). It does nothing for a view whose proxies may not have Secrets. leaveIdentity undoes
// joinIdentity, even after a panic in joinIdentity.
func (p *Planner) joinIdentity(pl *planned) {
	who := pl.view.Secrets
	if who == (view.Identity{}) {
		return
	}
	id := p.identities[who]
	if id == nil {
		id = &identity{p.secrets.Of(who), map[*planned]struct{}{}}
		p.identities[who] = id
	}
	id.views[pl] = struct{}{}
	pl.identity = id
	p.secrets.Use(id.Subscriptions, pl.modules)
}

// modulesOf lists the extensions of a view whose modules agents fetch.
func modulesOf(v view.View) (modules []model.Key) {
	for _, e := range v.Workload.Extensions.All() {
		if e.Way == extension.ByAgent {
			modules = append(modules, e.Key)
		}
	}
	return modules
}

// leaveIdentity disconnects a view that has no proxies any more from the Secret subscriptions of its identity.
func (p *Planner) leaveIdentity(pl *planned) {
	id := pl.identity
	if id == nil {
		return
	}
	p.secrets.Disuse(id.Subscriptions, pl.modules)
	if delete(id.views, pl); len(id.views) == 0 {
		delete(p.identities, id.Identity())
		p.secrets.Release(id.Subscriptions)
	}
}

// composeSecrets publishes the Secrets of an identity after they were planned again. It returns the proxies whose sets
// of resources changed.
func (p *Planner) composeSecrets(subs *secret.Subscriptions) (moved []Moved) {
	for pl := range p.identities[subs.Identity()].views {
		if pl.compose(p) {
			for h := range pl.handles {
				moved = append(moved, Moved{h, Slow})
			}
		}
	}
	return moved
}

// SubscribeSecrets adds and drops names of Secrets that a joined proxy subscribes to. It returns the proxies whose sets
// of resources changed. A name that the proxy may not have is treated as a missing Secret. For a proxy that has not
// joined, or that may not have any Secret, it returns nil and changes nothing. Afterwards Sealed returns the records
// whose private keys the added names need. SubscribeSecrets panics while a change is being planned, and after Drop.
func (p *Planner) SubscribeSecrets(h *Handle, add, drop []string) (moved []Moved) {
	p.idle("SubscribeSecrets")
	pl := h.planned.Load()
	if _, joined := p.handles[h]; !joined || pl.identity == nil {
		return nil
	}
	p.input.Tested(pl.view.Scope)
	p.secrets.Subscribe(pl.identity.Subscriptions, &h.secrets, add, drop)
	return p.composeSecrets(pl.identity.Subscriptions)
}

// Authorised sets the right of a service account to private keys, and plans the Secrets of its proxies with this right.
// It returns the proxies whose sets of resources changed. If the right is unknown (Known is false), unchanged or not
// needed, nothing changes. Authorised panics while a change is being planned, and after Drop.
func (p *Planner) Authorised(who view.Identity, right access.Standing) (moved []Moved) {
	p.idle("Authorised")
	for _, subs := range p.secrets.Authorised(who, right) {
		moved = append(moved, p.composeSecrets(subs)...)
	}
	return moved
}

// Sealed returns the records whose encrypted private keys are needed and not opened (decrypted) yet, sorted by key. The
// caller opens the keys and passes them to Opened. Sealed does not return a record again while its key is being opened.
func (p *Planner) Sealed() []*model.Secret { return p.secrets.Sealed() }

// Opened plans the Secrets of a record with its opened private key, and returns the proxies whose sets of resources
// changed. A key that is not needed any more, or whose record has changed meanwhile, is dropped. Opened panics while a
// change is being planned, and after Drop.
func (p *Planner) Opened(record *model.Secret, key model.PrivateKey) (moved []Moved) {
	p.idle("Opened")
	for _, subs := range p.secrets.Opened(record, key) {
		moved = append(moved, p.composeSecrets(subs)...)
	}
	return moved
}

// inherit copies the rights to private keys and the opened keys of another planner.
func (p *Planner) inherit(old *Planner) {
	p.secrets.Inherit(old.secrets)
	for who := range p.identities {
		p.Authorised(who, old.secrets.Right(who))
	}
}

// refused returns the reason why a proxy may never have a Secret of this name (secret.Refused). Both results are empty
// if the proxy may have the Secret.
func (p *Planner) refused(h *Handle, resource string) (cause, why string) {
	var subs *secret.Subscriptions
	if id := h.planned.Load().identity; id != nil {
		subs = id.Subscriptions
	}
	return secret.Refused(*h.Node, subs, resource)
}

// DeniedSecret returns the reason why a joined proxy may not have the Secret with a resource name, at the planner's
// snapshot. The proxy need not subscribe to the Secret. The result is empty if the proxy may have the Secret, if its
// right is unknown (secret.Table.Denied), and for names of secrets that the control plane does not serve.
func (p *Planner) DeniedSecret(h *Handle, resource string) (why string) {
	if !model.NamesSecret(resource) {
		return ""
	}
	if _, why := p.refused(h, resource); why != "" {
		return why
	}
	return p.secrets.Denied(h.planned.Load().identity.Subscriptions, resource)
}

// missing returns the reason why a proxy is not sent a Secret that it subscribes to. Both results are empty if the
// Secret is sent, or if it is pending.
func (p *Planner) missing(h *Handle, resource string) (cause, why string) {
	if cause, why := p.refused(h, resource); cause != "" {
		return cause, why
	}
	return h.planned.Load().identity.Missing(&h.secrets, resource)
}

// pendingKeys lists the Secrets that a proxy subscribes to and whose private keys are not opened yet.
func (p *Planner) pendingKeys(h *Handle) []model.Key {
	id := h.planned.Load().identity
	if id == nil {
		return nil
	}
	return p.secrets.Pending(id.Subscriptions, &h.secrets)
}
