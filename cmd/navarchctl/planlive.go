package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/preview"
)

// live requests the plan from the control plane. It sends the request to one replica after the other until one
// returns a report for the proxies of all replicas. If the replicas cannot query each other, it sends the request to
// each and merges their reports. Replicas without an answer are named in Partial of the report. With --prune, the
// objects to delete are added to c.
func (p *planning) live(ctx context.Context, c *change, warnings io.Writer) (*preview.Report, error) {
	pages, err := p.at.pages(ctx)
	if err != nil {
		return nil, err
	}
	if p.prune != "" {
		if err := p.pruneLive(ctx, c); err != nil {
			return nil, fmt.Errorf("--prune: %w", err)
		}
	}
	var documents [][]byte
	for _, o := range slices.Concat(c.put, c.removed) {
		documents = append(documents, o.JSON)
	}
	body, q := bytes.Join(documents, []byte("\n---\n")), url.Values{}
	switch {
	case len(c.put) == 0:
		q.Set("delete", "true")
	case len(c.removed) > 0:
		q.Set("removed", strconv.Itoa(len(c.removed)))
	}
	if p.envoy != "" {
		q.Set("bootstraps", "true")
	}
	if p.named {
		q.Set("proxies", "true")
	}
	if p.scope != "" {
		q.Set("scope", p.scope)
	}
	var failed []error
	for i, at := range pages {
		a, err := at.plan(ctx, q, body)
		switch {
		case err == nil && len(pages) > 1 && slices.ContainsFunc(a.Partial, func(m fleetapi.Missing) bool { return m.Unable }):
			return p.each(ctx, pages, q, body, warnings)
		case err == nil:
			for _, err := range failed {
				if !servesNone(err) {
					fmt.Fprintln(warnings, "warning:", err)
				}
			}
			r := a.Items[0]
			r.Partial = slices.Clone(p.at.missing)
			p.at.dial(ctx, pages[i+1:])
			for _, m := range p.at.missing[len(r.Partial):] { // these are not in r.Partial: a.Partial names the replicas without an answer
				fmt.Fprintln(warnings, "warning:", show.Printable(m))
			}
			for _, m := range a.Partial {
				r.Partial = append(r.Partial, m.Replica+": "+m.Reason)
			}
			return r, nil
		case final(err) || statusOf(err) == http.StatusRequestEntityTooLarge:
			return nil, err // every replica would refuse the request
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(failed...)
}

// each requests from each replica the report of its own proxies, and merges the reports. It leaves out processes
// that serve no proxies, and does not count them as missing. If replicas refuse an
// object, the report of the first such replica is returned alone. It is an error if no replica answers, or if a
// replica refuses the request.
func (p *planning) each(ctx context.Context, pages []page, q url.Values, body []byte, warnings io.Writer) (*preview.Report, error) {
	q.Set("alone", "true")
	reports := make([]*preview.Report, len(pages))
	failed := atEach(pages, func(i int, at page) error {
		a, err := at.plan(ctx, q, body)
		if err == nil {
			reports[i] = a.Items[0]
		}
		return err
	})
	var answers []*preview.Report
	var partial []string
	for i, err := range failed {
		switch {
		case err == nil:
			answers = append(answers, reports[i])
		case final(err):
			return nil, err
		case servesNone(err): // a leader, for example: no proxy is missing
		default:
			fmt.Fprintln(warnings, "warning:", err)
			partial = append(partial, noAnswer(pages[i]))
		}
	}
	if len(answers) == 0 {
		return nil, errors.Join(failed...)
	}
	if i := slices.IndexFunc(answers, (*preview.Report).Refused); i >= 0 {
		return answers[i], nil
	}
	merged := preview.Merge(answers)
	merged.Partial = slices.Concat(p.at.missing, partial)
	return merged, nil
}

// plan requests a report from one process. Without an error, the answer has exactly one item, which is not nil. It
// fails if ask fails, or if the response is not a report of this schema.
func (p page) plan(ctx context.Context, q url.Values, body []byte) (a fleetapi.Answer[*preview.Report], err error) {
	path := fleetapi.Root + "plan"
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	answer, err := p.ask(ctx, http.MethodPost, path, "", body)
	if err != nil {
		return a, err
	}
	if err = json.Unmarshal(answer, &a); err == nil && (len(a.Items) != 1 || a.Items[0] == nil || a.Items[0].Schema != preview.Schema) {
		err = fmt.Errorf("no report of schema %s", preview.Schema)
	}
	if err != nil {
		return a, fmt.Errorf("%s at %s: the answer of %s cannot be read: %w", p.what, p.address, path, err)
	}
	return a, nil
}
