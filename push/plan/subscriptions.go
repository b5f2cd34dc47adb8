package plan

import (
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// subscriptions are the Secrets of one namespace that proxies of one identity of it subscribe to. All proxies of the identity
// share them; each is sent what it has subscribed to itself.
type subscriptions struct {
	who      view.Identity
	asked    map[string]*asked // by resource name
	manifest *manifest.Manifest
	views    map[*planned]struct{}
	right    access.Standing // to private keys
	needed   bool            // the right has mattered
	doubted  bool            // something has changed that the right may hang on
}

// asked is one resource that somebody asks for.
type asked struct {
	unit       // res nil: there is none to be sent
	needs      model.Key
	refs       int    // proxies
	cause, why string // there is none for this identity; see refused
}

// release drops what nobody asks for any more.
func (subs *subscriptions) release(name string) {
	a := subs.asked[name]
	if a.refs--; a.refs == 0 {
		delete(subs.asked, name)
		subs.manifest = subs.manifest.With(nil, []string{name})
	}
}

// composeSubscriptions publishes what was planned again for an identity.
func (p *Planner) composeSubscriptions(subs *subscriptions) (moved []Moved) {
	for pl := range subs.views {
		if pl.compose(p) {
			for h := range pl.handles {
				moved = append(moved, Moved{h, Slow})
			}
		}
	}
	return moved
}

// subscribe finds or makes the subscriptions of a view's identity; nil: it may have no Secrets.
func (p *Planner) subscribe(pl *planned) *subscriptions {
	who := pl.view.Secrets
	if who == (view.Identity{}) {
		return nil
	}
	subs := p.subscriptions[who]
	if subs == nil {
		subs = &subscriptions{who: who, asked: map[string]*asked{}, views: map[*planned]struct{}{}}
		if p.subscriptions == nil {
			p.subscriptions, p.private, p.asking = map[view.Identity]*subscriptions{}, map[model.Key]*opened{}, map[string]map[*subscriptions]struct{}{}
		}
		p.subscriptions[who] = subs
	}
	subs.views[pl] = struct{}{}
	return subs
}

// leaveSubscriptions drops those of a view that nobody has any more.
func (p *Planner) leaveSubscriptions(pl *planned) {
	subs := pl.subscriptions
	if subs == nil {
		return
	}
	if delete(subs.views, pl); len(subs.views) == 0 {
		delete(p.subscriptions, subs.who)
		clear(subs.asked)
		p.enlistSubscriptions(subs)
		p.tidyKeys(subs.who.Namespace)
	}
}

// enlistSubscriptions keeps the list of the identities that ask for something.
func (p *Planner) enlistSubscriptions(subs *subscriptions) {
	namespace := subs.who.Namespace
	if len(subs.asked) == 0 {
		subs.needed, subs.doubted, subs.right = false, false, access.Standing{} // nobody keeps it up to date
		if delete(p.asking[namespace], subs); len(p.asking[namespace]) == 0 {
			delete(p.asking, namespace)
		}
		return
	}
	if p.asking[namespace] == nil {
		p.asking[namespace] = map[*subscriptions]struct{}{}
	}
	p.asking[namespace][subs] = struct{}{}
}
