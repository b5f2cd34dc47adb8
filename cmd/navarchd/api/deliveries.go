package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// waitOf parses the parameter wait. A missing parameter means 0. The error names the parameter.
func waitOf(q url.Values) (wait time.Duration, err error) {
	text := q.Get("wait")
	if text == "" {
		return 0, nil
	}
	if wait, err = time.ParseDuration(text); err != nil || wait < 0 || wait > fleetapi.MaxWait {
		return 0, fmt.Errorf("wait=%.20q: want a duration from 0s to %v", text, fleetapi.MaxWait)
	}
	return wait, nil
}

// Pauses of a request that waits for a delivery. Without a notification of the ledger, the request checks the delivery
// every 100 ms. These checks are needed because the ledger does not notify when a proxy that connected with older
// resources acknowledges.
const (
	again = 100 * time.Millisecond
	pause = 5 * time.Millisecond // after a notification of the ledger, so that several changes are checked at once
)

// delivery is a request for the state of a delivery: which proxies have acknowledged a revision, or an object's newest
// change.
type delivery struct {
	revision int64
	object   ledger.Object // if its function Is is nil, the request is about the whole revision
	who      authz.Caller
}

// readDelivery parses the parameters revision (required) and object. The error names the parameter. An object of a
// namespace that the caller may not see is an error.
func readDelivery(who authz.Caller, q url.Values) (d delivery, err error) {
	d.who = who
	if d.revision, err = strconv.ParseInt(q.Get("revision"), 10, 64); err != nil || d.revision <= 0 {
		return d, fmt.Errorf(
			"revision=%.30q: want a revision of the store; an answer's field revision, or %sstored for an object, states one",
			q.Get("revision"), fleetapi.Root)
	}
	text := q.Get("object")
	if text == "" {
		return d, nil
	}
	kind, name, ok := strings.Cut(text, " ")
	if !ok || name == "" {
		return d, fmt.Errorf("object=%.100q: want \"KIND NAMESPACE/NAME\", or \"KIND NAME\" without a namespace", text)
	}
	namespace, _, in := strings.Cut(name, "/")
	if !in {
		namespace = ""
	}
	if !sees(who)(namespace) {
		return d, fmt.Errorf("object=%.100q: it belongs to another tenant", text)
	}
	d.object = ledger.Object{Namespace: namespace, Is: func(key model.Key) bool {
		return key.Kind.String() == kind && key.Origin.Cluster() == "" && key.String() == text
	}}
	return d, nil
}

// deliveryPart returns the state of a delivery at this replica, once everything is delivered, the parameter wait is
// over, or ctx ends. Errors name a parameter.
func deliveryPart(a *API, ctx context.Context, who authz.Caller, q url.Values) (any, error) {
	d, err := readDelivery(who, q)
	switch {
	case err != nil:
		return nil, err
	case a.Ledger == nil:
		return fleetapi.Delivered{Planned: true, Done: true}, nil // no proxy is connected to this process
	}
	wait, err := waitOf(q)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := a.Ledger.Changed()
		part := a.delivered(d, false)
		if part.Done || ctx.Err() != nil {
			return a.delivered(d, true), nil
		}
		timer.Reset(again)
		select {
		case <-changed:
			timer.Reset(pause)
			<-timer.C
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// delivered returns the present state of a delivery. If names is set, it lists the proxies that have not acknowledged,
// and the proxies that refuse.
func (a *API) delivered(d delivery, names bool) (part fleetapi.Delivered) {
	visible, all := sees(d.who), d.who.Sees == nil
	part.Planned = a.notified() >= d.revision
	target := a.Ledger.Find(d.revision, d.object, visible, all)
	part.Exact, part.Changes = target.Exact, target.Changes
	if (!part.Planned || !target.Paid) && !names {
		return part
	}
	most := 0
	if names {
		most = fleetapi.MaxNamed
	}
	owing, count := a.Server.Owing(target.Of, visible, most)
	part.PendingCount = count
	part.Done = part.Planned && target.Paid && count == 0
	for i := range owing {
		part.Pending = append(part.Pending, fleetapi.Pending{Proxy: view.NameOf(owing[i].Node), Replica: a.Self,
			Since: owing[i].Since, Why: why(&owing[i], time.Now())})
	}
	if names {
		part.Refusing = a.refusing(d, target, visible)
	}
	return part
}

// refusing lists the proxies that refuse a resource because of the target's changes. It also lists the views (groups of
// proxies with equal configuration) from which such a resource is withheld.
func (a *API) refusing(d delivery, target ledger.Target, visible func(string) bool) (all []fleetapi.Pending) {
	server, within := a.Server, spanOf(target)
	for _, r := range server.RefusalsOf(visible) {
		if !d.causes(r.Objects) && !within.refused(r.Since) || len(all) == fleetapi.MaxNamed {
			continue
		}
		all = append(all, fleetapi.Pending{Proxy: view.NameOf(r.Node), Replica: a.Self, Since: r.At,
			Why: fmt.Sprintf("it refused %s %s: %s", r.Type.Noun(), r.Name, r.Text), Objects: debug.Places(r.Objects)})
	}
	for _, w := range server.Withheld() {
		if !visible(w.Namespace) || !d.causes(w.Objects) && !within.withheld(d, w) || len(all) == fleetapi.MaxNamed {
			continue
		}
		all = append(all, fleetapi.Pending{Proxy: "view " + w.View, Replica: a.Self, Since: w.First,
			Why: fmt.Sprintf("%s %s is withheld from its proxies, because %d refused it: %s",
				w.Type.Noun(), w.Name, w.RefusedBy, w.Text),
			Objects: debug.Places(w.Objects)})
	}
	return all
}

// causes reports whether the requested object is the likeliest cause of a refusal, which is the first of objects. The
// age of the refusal does not matter: the object's newest change may not have changed the refused resource.
func (d *delivery) causes(objects []model.Place) bool {
	return d.object.Is != nil && len(objects) > 0 && d.object.Is(objects[0].Key)
}

// span is the range of revisions and times of a target's changes. The zero span contains no refusal.
type span struct {
	model.Span
	late bool // proxies refused the changes in responses that may also contain later changes
}

// spanOf returns the span of a target.
func spanOf(target ledger.Target) span { return span{target.Span, target.Counts.Refused > 0} }

// refused reports whether the changes of the span may have caused a refusal that began with the given revision. A
// refusal that began after the span counts only if s.late is set.
func (s span) refused(since int64) bool {
	return s.First > 0 && since >= s.First && (s.late || since <= s.Last)
}

// withheld reports whether the changes of the span may be the reason why a version of a resource is withheld. If an
// object is requested and the version's objects are known, the requested object must be one of them.
func (s span) withheld(d delivery, w quarantine.Withheld) bool {
	made := func(at model.Place) bool { return d.object.Is(at.Key) }
	return s.First > 0 && !w.Last.Before(s.Since) &&
		(d.object.Is == nil || len(w.Objects) == 0 || slices.ContainsFunc(w.Objects, made))
}

// why returns the reason why a proxy has not acknowledged a change.
func why(o *serve.Owing, now time.Time) string {
	var flying []string
	for t := range xds.NumTypes {
		if o.Types[t].InFlight > 0 {
			flying = append(flying, t.Noun()+"s")
		}
	}
	switch {
	case len(o.Warming.Clusters) > 0:
		return fmt.Sprintf("Envoy warms clusters since %s, as it may be %s: DNS, a certificate or a health check is missing",
			o.Warming.Since.UTC().Format(time.RFC3339), o.Warming.Clusters[0])
	case len(flying) > 0 && o.Since.IsZero():
		return "it connected with older resources, and has not acknowledged " + strings.Join(flying, ", ") + " yet"
	case len(flying) > 0:
		return fmt.Sprintf("it has been sent %s and has not acknowledged them for %v", strings.Join(flying, ", "),
			now.Sub(o.Since).Round(100*time.Millisecond))
	case o.Since.IsZero():
		return "it connected with older resources, and has not asked for all types again"
	case o.Turn:
		return "it waits for its turn in the rollout of the configuration"
	}
	return "it waits to be sent the change"
}

// mergeDeliveries merges the parts of all replicas.
func mergeDeliveries(_ *API, q url.Values,
	parts []fleetapi.From[fleetapi.Delivered], missing int) (a fleetapi.Answer[fleetapi.Delivery], err error) {
	revision, err := strconv.ParseInt(q.Get("revision"), 10, 64)
	if err != nil {
		return a, err
	}
	return fleetapi.MergeDeliveries(revision, parts, missing), nil
}

// Objects reports which objects the leader has stored.
type Objects interface {
	// Stored reports whether this process leads, and which generation of an object it has read and stored. Stored does
	// not wait for the requested generation. If this process does not lead, the result is zero. The error is that of
	// the context.
	Stored(ctx context.Context, q StoredQuestion) (fleetapi.Stored, error)
}

// StoredQuestion names an object, and the lowest metadata.generation that counts as stored; 0: any generation. Group is
// empty for Kubernetes' core group, and Namespace for objects without a namespace.
type StoredQuestion struct {
	Group, Kind, Namespace, Name string
	Generation                   int64
	Whole                        bool // problems name all objects, for a caller who sees everything
}

// storedEvery is the interval at which a leader checks whether an object is stored, while a caller waits.
const storedEvery = 20 * time.Millisecond

// storedPart returns the state of an object, once the leader has stored it or the parameter wait is over. A process
// that does not lead answers at once. Errors: a wrong parameter, or the error of ctx.
func storedPart(a *API, ctx context.Context, who authz.Caller, q url.Values) (any, error) {
	question := StoredQuestion{Group: q.Get("group"), Kind: q.Get("kind"), Namespace: q.Get("namespace"), Name: q.Get("name"),
		Whole: who.Sees == nil}
	var err error
	if text := q.Get("generation"); text != "" {
		if question.Generation, err = strconv.ParseInt(text, 10, 64); err != nil || question.Generation < 0 {
			return nil, fmt.Errorf("generation=%.30q: want the object's metadata.generation", text)
		}
	}
	switch {
	case question.Kind == "" || question.Name == "":
		return nil, errors.New("kind and name of the object are needed")
	case !sees(who)(question.Namespace):
		return nil, errors.New("namespace: it belongs to another tenant")
	case a.Objects == nil:
		return fleetapi.Stored{}, nil
	}
	wait, err := waitOf(q)
	if err != nil {
		return nil, err
	}
	over := time.After(wait)
	tick := time.NewTicker(storedEvery)
	defer tick.Stop()
	for {
		now, err := a.Objects.Stored(ctx, question)
		if err != nil || now.Revision > 0 || !now.Leads {
			return now, err
		}
		select {
		case <-tick.C:
		case <-over:
			return now, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func mergeStored(_ *API, _ url.Values, parts []fleetapi.From[fleetapi.Stored], _ int) (answer fleetapi.Answer[fleetapi.Stored], err error) {
	for _, f := range parts {
		answer.Items = append(answer.Items, f.Part)
	}
	return answer, nil
}
