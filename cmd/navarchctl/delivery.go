package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/store/problem"
)

// errorsOf returns the errors of the awaited object that any process lists. It leaves out refusals by proxies, because
// the Delivery (the control plane's answer to a wait) contains them. If the wait is for a revision and not for an
// object, it returns nothing.
func (w *waiter) errorsOf(ctx context.Context, on awaited) (found []string, err error) {
	if on.name == "" {
		return nil, nil
	}
	asking, cancel := beyond(ctx, 5*time.Second)
	defer cancel()
	all, err := w.problems(asking, url.Values{"object": {on.object()}, "severity": {string(problem.Error)}})
	for _, p := range all.Items {
		if p.Proxies == 0 {
			found = append(found, p.Field+": "+p.Message)
		}
	}
	return found, err
}

// elsewhere returns a hint that names an object of the awaited object's kind and name in another namespace. It returns
// "" if there is no such object, or if an API server has already reported that the awaited object is missing.
func (w *waiter) elsewhere(ctx context.Context, on awaited) string {
	if w.inCluster() {
		return ""
	}
	asking, cancel := beyond(ctx, 2*time.Second)
	defer cancel()
	names, _ := (&waiter{controlPlane: w.controlPlane}).objectsOf(asking, on.kind) // without names there is no hint
	for _, name := range names {
		namespace, is := strings.CutPrefix(name, on.name+".")
		if is && namespace != on.namespace && !strings.Contains(namespace, ".") {
			return fmt.Sprintf("%s %s/%s has this name: -n %s", on.kind.kind, namespace, on.name, namespace)
		}
	}
	return ""
}

// unreached names the addresses of --server that did not answer. In a cluster it returns nil, because the answers name
// the missing replicas.
func (w *waiter) unreached() []string {
	if len(w.pods) > 0 {
		return nil
	}
	return slices.Clone(w.missing)
}

// refused reports whether proxies refuse the change, or a version with the change is withheld from proxies.
func refused(d *fleetapi.Delivery) bool {
	return d.Change != nil && d.Change.Refused > 0 || len(d.Refusing) > 0
}

// blames reports whether the awaited object may have caused a refusal. The result is true if a refusal names the object
// or names no objects, and also if there are no refusals. If the result is false, other objects caused the refusals.
func blames(d *fleetapi.Delivery, on awaited) bool {
	return len(d.Refusing) == 0 || slices.ContainsFunc(d.Refusing, func(p fleetapi.Pending) bool {
		return len(p.Objects) == 0 || slices.ContainsFunc(p.Objects, func(place string) bool {
			return strings.HasPrefix(place+" ", on.object()+" ") // a place is an object, or "OBJECT FIELD"
		})
	})
}

// headline returns the sentence that begins the result of a wait.
func headline(on awaited, d *fleetapi.Delivery) string {
	revision, intro := d.Revision, ""
	switch c := d.Change; {
	case c != nil && d.Exact:
		revision = cmp.Or(c.Last, revision) // the object's change may be older than the requested revision
	case c != nil && on.name != "" && c.More > 0:
		revision = cmp.Or(c.Last, revision)
		intro = fmt.Sprintf("Revision %d changed more objects than are recorded, and %s may be one of them. ", revision, on)
	}
	switch c := d.Change; {
	case !d.Planned:
		return fmt.Sprintf("Revision %d is not planned by all replicas yet.", d.Revision)
	case c == nil && d.Done && len(d.Refusing) > 0:
		return fmt.Sprintf("Revision %d has no recent change of %s, and proxies refuse its configuration.", d.Revision, on)
	case c == nil && d.Done:
		return fmt.Sprintf("Revision %d is acknowledged by all proxies: no recent change of %s affects one.", d.Revision, on)
	case c == nil && d.PendingCount == 0:
		return fmt.Sprintf("Revision %d is not known to be acknowledged, because not all replicas answer.", d.Revision)
	case c == nil:
		return fmt.Sprintf("Revision %d is not acknowledged by all proxies.", d.Revision)
	case c.Affected == 0 && d.Done:
		return fmt.Sprintf("%sRevision %d affects no proxy (%s).", intro, revision, on)
	default:
		line := fmt.Sprintf("%sRevision %d is acknowledged by %s of %s affected proxies",
			intro, revision, show.Thousands(c.Acknowledged), show.Thousands(c.Affected))
		if c.Gone > 0 {
			line += fmt.Sprintf("; %s have gone", show.Thousands(c.Gone))
		}
		if d.Done && c.All > 0 {
			line += ", in " + time.Duration(c.All*float64(time.Second)).Round(time.Millisecond).String()
		}
		if d.Done {
			line += fmt.Sprintf(" (%s)", on)
		}
		return line + "."
	}
}

// printDelivery prints the result of a wait, which is the first item of answer. The argument answer must have at least
// one item. The argument missing names processes that did not answer. The argument problems lists the errors of the
// awaited object. A returned error is that of a write to out.
func printDelivery(out io.Writer, on awaited, answer fleetapi.Answer[fleetapi.Delivery], missing, problems []string) error {
	d := &answer.Items[0]
	lines := []string{headline(on, d)}
	if n := d.PendingCount; n > 0 {
		lines = append(lines, fmt.Sprintf("%s not acknowledged it:", isAre(n)))
	}
	for _, p := range d.Pending {
		lines = append(lines, fmt.Sprintf("  %s at replica %s: %s", p.Proxy, p.Replica, p.Why))
	}
	if more := d.PendingCount - len(d.Pending); more > 0 && len(d.Pending) > 0 {
		lines = append(lines, fmt.Sprintf("  and %s more", show.Thousands(more)))
	}
	for _, p := range d.Refusing {
		line := fmt.Sprintf("  %s at replica %s: %s", p.Proxy, p.Replica, p.Why)
		if len(p.Objects) > 0 {
			line += " (made by " + strings.Join(p.Objects, ", ") + ")"
		}
		lines = append(lines, line)
	}
	for _, m := range answer.Partial {
		lines = append(lines, fmt.Sprintf("  replica %s is not in this answer: %s", m.Replica, m.Reason))
	}
	for _, m := range missing {
		lines = append(lines, "  process "+m+" is not in this answer")
	}
	for _, p := range problems {
		lines = append(lines, "  error of the object: "+p)
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(out, show.Printable(line)); err != nil {
			return err
		}
	}
	return nil
}

// secretNote states what a wait for a Secret does not prove.
const secretNote = "note: a Secret has no generation. The version that the leader read last is stored and sealed. This command does " +
	"not wait until each replica has opened the private key: navarchctl proxy-config secret NAME.NAMESPACE prints the certificate " +
	"that a gateway has"

// isAre returns "One proxy has" or "N proxies have".
func isAre(n int) string {
	if n == 1 {
		return "One proxy has"
	}
	return show.Thousands(n) + " proxies have"
}
