package plan

import (
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// joinIdentity finds or makes the Secrets of a view's identity, unless it may have none. leaveIdentity ends it, also where it panics.
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

// modulesOf are the extensions of a view whose modules agents fetch.
func modulesOf(v view.View) (modules []model.Key) {
	for _, e := range v.Workload.Extensions.All() {
		if e.Way == extension.ByAgent {
			modules = append(modules, e.Key)
		}
	}
	return modules
}

// leaveIdentity drops the Secrets of a view that nobody has any more.
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

// composeSecrets publishes what was planned again for an identity.
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

// SubscribeSecrets says that a proxy subscribes to some resources of type Secret by name, and to others no more. What it may not have
// does not exist for it. Rights and Sealed say afterwards what it waits for.
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

// Authorised plans with the right of a service account to private keys. One that is not known changes nothing: what there was, stays.
func (p *Planner) Authorised(who view.Identity, right access.Standing) (moved []Moved) {
	p.idle("Authorised")
	for _, subs := range p.secrets.Authorised(who, right) {
		moved = append(moved, p.composeSecrets(subs)...)
	}
	return moved
}

// Opened answers Sealed with the private key of a record. One that is not needed any more is forgotten.
func (p *Planner) Opened(record *model.Secret, key model.PrivateKey) (moved []Moved) {
	p.idle("Opened")
	for _, subs := range p.secrets.Opened(record, key) {
		moved = append(moved, p.composeSecrets(subs)...)
	}
	return moved
}

// inherit takes over what another planner knows of the rights to private keys, and the keys that were opened.
func (p *Planner) inherit(old *Planner) {
	p.secrets.Inherit(old.secrets)
	for who := range p.identities {
		p.Authorised(who, old.secrets.Right(who))
	}
}

// refused says why a proxy may not have a Secret of this name, whatever there is (secret.Refused).
func (p *Planner) refused(h *Handle, resource string) (cause, why string) {
	var subs *secret.Subscriptions
	if id := h.planned.Load().identity; id != nil {
		subs = id.Subscriptions
	}
	return secret.Refused(h.Node, subs, resource)
}

// missing says why there is nothing of a resource that a proxy subscribes to; empty: there is, or it is waited for.
func (p *Planner) missing(h *Handle, resource string) (cause, why string) {
	if cause, why := p.refused(h, resource); cause != "" {
		return cause, why
	}
	return h.planned.Load().identity.Missing(&h.secrets, resource)
}

// pendingKeys are the Secrets that a proxy subscribes to and that are not opened yet.
func (p *Planner) pendingKeys(h *Handle) []model.Key {
	id := h.planned.Load().identity
	if id == nil {
		return nil
	}
	return p.secrets.Pending(id.Subscriptions, &h.secrets)
}
