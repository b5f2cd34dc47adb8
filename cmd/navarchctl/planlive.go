package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/store/object"
)

// live asks all replicas for previews of their own proxies, and merges the reports. Replicas without an answer are
// named in the report.
func (p *planning) live(ctx context.Context, objects []*object.Object, warnings io.Writer) (*preview.Report, error) {
	pages, err := p.at.pages(ctx)
	if err != nil {
		return nil, err
	}
	var documents [][]byte
	for _, o := range objects {
		documents = append(documents, o.JSON)
	}
	body, path := bytes.Join(documents, []byte("\n---\n")), "/debug/plan"
	if p.remove {
		path += "?delete=true"
	}
	reports := make([]*preview.Report, len(pages))
	failed := atEach(pages, func(i int, at page) (err error) {
		reports[i], err = at.plan(ctx, path, body)
		return err
	})
	var answers []*preview.Report
	var partial []string
	for i, err := range failed {
		var no statusError
		switch {
		case err == nil:
			answers = append(answers, reports[i])
		case errors.As(err, &no) && (no.status == http.StatusBadRequest || no.status == http.StatusForbidden):
			return nil, err // every replica says so
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

// plan asks one replica.
func (p page) plan(ctx context.Context, path string, body []byte) (*preview.Report, error) {
	answer, err := p.ask(ctx, http.MethodPost, path, "", body)
	if err != nil {
		return nil, err
	}
	r := &preview.Report{}
	if err := json.Unmarshal(answer, r); err != nil || r.Schema != preview.Schema {
		return nil, fmt.Errorf("%s at %s: %s is no report of schema %s: %w", p.what, p.address, path, preview.Schema, err)
	}
	return r, nil
}
