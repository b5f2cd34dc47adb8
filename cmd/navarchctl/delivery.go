package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/show"
)

// printDelivery prints the result of a wait. answer must have at least one item, and its first item is printed.
// problems are the errors of the object.
func printDelivery(out io.Writer, on awaited, answer fleetapi.Answer[fleetapi.Delivery], problems []string, took time.Duration) error {
	d := &answer.Items[0]
	var lines []string
	switch c := d.Change; {
	case !d.Planned:
		lines = append(lines, fmt.Sprintf("Revision %d is not planned by all replicas yet.", d.Revision))
	case c == nil && d.Done:
		lines = append(lines, fmt.Sprintf("Revision %d is acknowledged by all proxies: no recent change of %s affects one.", d.Revision, on))
	case c == nil && d.PendingCount == 0:
		lines = append(lines, fmt.Sprintf("Revision %d is not known to be acknowledged, because not all replicas answer.", d.Revision))
	case c == nil:
		lines = append(lines, fmt.Sprintf("Revision %d is not acknowledged by all proxies.", d.Revision))
	case c.Affected == 0 && d.Done:
		lines = append(lines, fmt.Sprintf("Revision %d affects no proxy (%s).", d.Revision, on))
	default:
		line := fmt.Sprintf("Revision %d is acknowledged by %s of %s affected proxies",
			d.Revision, show.Thousands(c.Acknowledged), show.Thousands(c.Affected))
		if c.Gone > 0 {
			line += fmt.Sprintf("; %s have gone", show.Thousands(c.Gone))
		}
		if d.Done {
			line += fmt.Sprintf(", in %v (%s)", took.Round(time.Millisecond), on)
		}
		lines = append(lines, line+".")
	}
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

// isAre returns "One proxy has" or "N proxies have".
func isAre(n int) string {
	if n == 1 {
		return "One proxy has"
	}
	return show.Thousands(n) + " proxies have"
}
