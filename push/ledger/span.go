package ledger

import (
	"time"

	"navarch.io/navarch/store/model"
)

// narrow sets the spans of a new change. The argument now is the present time. The spans stay nil if all namespaces
// have the span of the change.
func (c *Change) narrow(p Plan, now time.Time) {
	differ := false
	spans := map[string]model.Span{}
	for _, key := range p.Objects {
		if _, done := spans[key.Namespace]; done {
			continue
		}
		s, known := p.Spans[key.Namespace]
		if !known {
			s = c.span
		}
		if s.Since.Before(c.span.Since) || s.Since.After(now) {
			s.Since = c.span.Since
		}
		spans[key.Namespace], differ = s, differ || s != c.span
	}
	if differ {
		c.spans = spans
	}
}

// visible returns the span of the edits in visible namespaces. Without such edits, or if all is true, it returns the
// span of the change.
func (c *Change) visible(sees func(namespace string) bool, all bool) (span model.Span) {
	if all {
		return c.span
	}
	for namespace, s := range c.spans {
		if sees(namespace) {
			span = span.Join(s)
		}
	}
	if span.Last == 0 {
		return c.span
	}
	return span
}

// measure prepares the parts of tenants whose first edit is later than the first edit of the change. The times that
// such a tenant sees begin with its own edit, so that they do not depend on others' edits.
func (c *Change) measure(tenant func(namespace string) string) {
	own := map[string]model.Span{}
	for namespace, s := range c.spans {
		name := tenant(namespace)
		own[name] = own[name].Join(s)
	}
	if len(own) == 0 {
		return
	}
	for namespace, p := range c.parts {
		if s, edited := own[tenant(namespace)]; edited && s.Since.After(c.span.Since) {
			p.own, p.late = &histogram{}, s.Since.Sub(c.span.Since)
			c.bytes += 192
		}
	}
}

// acknowledged counts an acknowledgement at the time now.
func (p *Part) acknowledged(now time.Time) {
	took := now.Sub(p.change.span.Since)
	p.took.add(took)
	if p.own != nil {
		p.own.add(took - p.late)
	}
}
