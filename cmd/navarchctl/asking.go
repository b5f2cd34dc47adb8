package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchctl/show"
	"navarch.io/navarch/push/inspect"
)

// hedgeAfter is the time without an answer after which anyOf queries the next process too.
const hedgeAfter = 400 * time.Millisecond

// errNoAPI means that the control plane does not serve /api/v1.
var errNoAPI = errors.New("the control plane does not answer " + fleetapi.Root + ": its version is older, or ENABLE_DEBUG_ON_HTTP=false")

// askAny reads an answer of the API from any replica. Each replica answers for the whole fleet. Errors are those of
// anyOf.
func askAny[T any](ctx context.Context, c *controlPlane, path string, q url.Values) (fleetapi.Answer[T], error) {
	return anyOf[fleetapi.Answer[T]](ctx, c, fleetapi.Root+path+"?"+q.Encode())
}

// maxWindows is the maximum number of answers that askAll requests.
const maxWindows = 20

// askAll reads a list of the API in several requests, each for at most fleetapi.MaxLimit items. The result has the
// items of all answers. Its other fields are those of the last answer. After maxWindows answers, the remaining items
// are left out, and Next is not empty. Errors are those of askAny.
func askAll[T any](ctx context.Context, c *controlPlane, path string, q url.Values) (all fleetapi.Answer[T], err error) {
	q = maps.Clone(q)
	q.Set("limit", strconv.Itoa(fleetapi.MaxLimit))
	for range maxWindows {
		answer, err := askAny[T](ctx, c, path, q)
		if err != nil {
			return all, err
		}
		answer.Items = append(all.Items, answer.Items...)
		if all = answer; all.Next == "" {
			break
		}
		q.Set("continue", all.Next)
	}
	return all, nil
}

// fleet is the processes of one revision of the control plane. Its processes answer for each other.
type fleet[T any] struct {
	controlPlane
	path  string
	query url.Values
	merge func([]fleetapi.From[[]T]) fleetapi.Answer[T]
}

// askFleets reads a whole list of the API from the fleets of all revisions, and merges their items. Partial of the
// result names the processes whose part is missing, and c.missing the known processes that did not answer. It is an
// error if no fleet answers. Schema is empty if a fleet does not have the list in the API.
func askFleets[T any](ctx context.Context, c *controlPlane, path string, q url.Values,
	merge func([]fleetapi.From[[]T]) fleetapi.Answer[T]) (all fleetapi.Answer[T], err error) {
	fleets, err := c.fleets(ctx)
	if err != nil {
		return all, err
	}
	var parts []fleetapi.From[[]T]
	var failed []error
	c.dialled, c.found = true, nil
	fromAPI := true
	for _, of := range fleets {
		f := fleet[T]{of, path, q, merge}
		answer, err := f.ask(ctx)
		if err != nil {
			failed = append(failed, err)
			f.missing = nil
			for _, p := range f.found {
				f.unanswered(p)
			}
		} else {
			parts = append(parts, fleetapi.From[[]T]{Part: answer.Items})
			fromAPI = fromAPI && answer.Schema != ""
			all.Partial, all.Next = append(all.Partial, answer.Partial...), cmp.Or(all.Next, answer.Next)
		}
		c.found, c.missing, c.silent = append(c.found, f.found...), append(c.missing, f.missing...), c.silent+f.silent
	}
	if len(failed) == len(fleets) {
		return all, errors.Join(failed...)
	}
	if fromAPI {
		all.Schema = fleetapi.Schema
	}
	all.Items = merge(parts).Items
	return all, nil
}

// fleets returns the processes of each revision. Outside of a cluster, all processes are of one fleet. Errors are those
// of pages.
func (c *controlPlane) fleets(ctx context.Context) (all []controlPlane, err error) {
	pages, err := c.pages(ctx)
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	for _, p := range pages {
		i, known := at[p.revision]
		if !known {
			i = len(all)
			at[p.revision], all = i, append(all, controlPlane{where: c.where, pods: c.pods, everyRole: c.everyRole, dialled: c.dialled})
		}
		all[i].found = append(all[i].found, p)
	}
	return all, nil
}

// ask reads the list. Any process answers for all replicas of its fleet. If the answer lacks processes that it cannot
// ask (fleetapi.Missing.Unable), such as a leader that serves no proxies, ask adds their parts, which it requests from
// the known processes. If that does not suffice, it also looks for a process whose answer lacks fewer. Processes of
// older versions do not have the list in the API: then their pages /debug/PATH are read. Errors are those of askAll and
// gather.
func (f *fleet[T]) ask(ctx context.Context) (fleetapi.Answer[T], error) {
	all, err := askAll[T](ctx, &f.controlPlane, f.path, f.query)
	switch {
	case errors.Is(err, errNoAPI):
		answers, err := gather[[]T](ctx, &f.controlPlane, "/debug/"+f.path, io.Discard)
		var parts []fleetapi.From[[]T]
		for _, a := range answers {
			parts = append(parts, fleetapi.From[[]T]{Replica: a.from.address, Part: a.value})
		}
		return f.merge(parts), err
	case err != nil || len(f.found) < 2 || !slices.ContainsFunc(all.Partial, unable):
		return all, err
	}
	own := f.each(ctx)
	lacking := func(a *fleetapi.Answer[T]) []fleetapi.Missing {
		return slices.DeleteFunc(slices.Clone(a.Partial), func(m fleetapi.Missing) bool { return own[m.Replica] != nil })
	}
	for _, p := range f.found[1:] {
		if !slices.ContainsFunc(lacking(&all), unable) {
			break
		}
		other, err := askAll[T](ctx, &controlPlane{found: []page{p}, dialled: true}, f.path, f.query)
		if err == nil && len(lacking(&other)) < len(lacking(&all)) {
			all = other
		}
	}
	parts := []fleetapi.From[[]T]{{Part: all.Items}}
	for _, m := range all.Partial {
		parts = append(parts, fleetapi.From[[]T]{Replica: m.Replica, Part: own[m.Replica]})
	}
	all.Partial, all.Items = lacking(&all), f.merge(parts).Items
	return all, nil
}

// unable reports whether only a client can ask a missing process.
func unable(m fleetapi.Missing) bool { return m.Unable }

// each requests from each known process its own part of the list. The result maps names of processes to parts, which
// are not nil. It leaves out processes without a part (fleetapi.ServesNone), and adds processes that do not answer to
// f.missing.
func (f *fleet[T]) each(ctx context.Context) map[string][]T {
	q := maps.Clone(f.query)
	q.Set("alone", "true")
	answers := make([]fleetapi.Answer[T], len(f.found))
	failed := atEach(f.found, func(i int, p page) (err error) {
		answers[i], err = askAll[T](ctx, &controlPlane{found: []page{p}, dialled: true}, f.path, q)
		return err
	})
	parts := map[string][]T{}
	for i, err := range failed {
		switch {
		case err == nil:
			parts[answers[i].Replica] = append([]T{}, answers[i].Items...)
		case !servesNone(err):
			f.unanswered(f.found[i])
		}
	}
	return parts
}

// warnOfMissing prints a warning that names the processes whose part is missing in an answer: the processes in partial,
// and the entries of c.missing, which are Pods that are not ready and processes that did not answer. The argument what
// names the items. warnOfMissing prints nothing if the answer is complete. The error is that of a write to w.
func (c *controlPlane) warnOfMissing(w io.Writer, what string, partial []fleetapi.Missing) error {
	var all []string
	for _, m := range partial {
		all = append(all, m.Replica+" ("+m.Reason+lastWords(m.Last)+")")
	}
	all = append(all, c.missing...)
	if len(all) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "warning: %s may be missing in this answer, because %d replicas are not in it: %s\n",
		what, len(all), show.Printable(strings.Join(all, ", ")))
	return err
}

// ofProxy reads the item of an endpoint about one proxy. Any process answers for the proxy's replica. Processes of
// older versions do not have the endpoint: then the argument page, a page of /debug, is read from the proxy's replica.
// Errors are those of anyOf and first.
func (c *controlPlane) ofProxy(ctx context.Context, endpoint string, q url.Values, page string) (json.RawMessage, error) {
	a, err := askAny[json.RawMessage](ctx, c, endpoint, q)
	switch {
	case errors.Is(err, errNoAPI):
		return c.first(ctx, page)
	case err == nil && len(a.Items) != 1:
		return nil, fmt.Errorf("%s%s: %d items, want one", fleetapi.Root, endpoint, len(a.Items))
	case err != nil:
		return nil, err
	}
	return a.Items[0], nil
}

// anyOf reads JSON at a path from any process of the control plane. It queries the processes in the order of c.pages.
// When a process fails, or has not answered within hedgeAfter, anyOf also queries the next one. It returns the first
// answer. Later requests go first to the process that answered. If --server lists several addresses, anyOf adds the
// unreachable addresses to c.missing.
//
// A refusal that other processes would repeat (final) is returned at once. If all processes fail, the error joins their
// errors (controlPlane.joined), and matches errNoAPI if a process does not serve the path. If ctx ends first, the error
// is that of ctx.
func anyOf[V any](ctx context.Context, c *controlPlane, path string) (value V, err error) {
	pages, err := c.pages(ctx)
	if err != nil {
		return value, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		at    int
		value V
		err   error
	}
	results := make(chan result, len(pages))
	next := time.NewTimer(0)
	defer next.Stop()
	var failed []error
	for asked := 0; len(failed) < len(pages); {
		select {
		case <-next.C:
			if asked == len(pages) {
				continue
			}
			p, r := pages[asked], result{at: asked}
			asked++
			next.Reset(hedgeAfter)
			go func() {
				r.err = p.read(ctx, path, &r.value)
				results <- r
			}()
		case r := <-results:
			if r.err == nil {
				pages[0], pages[r.at] = pages[r.at], pages[0]
				c.dial(ctx, pages[1:])
				return r.value, nil
			}
			if final(r.err) {
				return value, r.err
			}
			failed = append(failed, r.err)
			next.Reset(0)
		case <-ctx.Done():
			return value, ctx.Err()
		}
	}
	all := c.joined(failed)
	if slices.ContainsFunc(failed, noEndpoint) {
		return value, fmt.Errorf("%w (%w)", errNoAPI, all)
	}
	return value, all
}

// dialTimeout is the time limit for a connection to a listed address.
const dialTimeout = time.Second

// dial adds the addresses that accept no connection to c.missing. One process answers for the fleet, so an unreachable
// address would otherwise stay unnoticed. Only the first call connects, and only if a flag or the environment lists the
// addresses.
func (c *controlPlane) dial(ctx context.Context, pages []page) {
	if c.dialled || len(c.pods) > 0 || openedOf(ctx) != nil {
		return
	}
	c.dialled = true
	for i, err := range atEach(pages, func(_ int, p page) error {
		host := p.address
		if u, err := url.Parse(p.address); err == nil && u.Host != "" {
			host = u.Host
		}
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "tcp", host)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}) {
		if err != nil {
			c.unanswered(pages[i])
		}
	}
}

// statusOf returns the HTTP status of an error; 0 if the error is not an answer of a server.
func statusOf(err error) int {
	var said statusError
	if errors.As(err, &said) {
		return said.status
	}
	return 0
}

// answers404 reports whether an error is status 404 with one of some texts.
func answers404(err error, texts ...string) bool {
	var said statusError
	return errors.As(err, &said) && said.status == http.StatusNotFound &&
		slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(said.said, text) })
}

// noEndpoint reports whether an error means that the server does not know the path.
func noEndpoint(err error) bool { return answers404(err, "404 page not found", " is no endpoint") }

// servesNone reports whether an error means that a process has no part in an answer, because it serves no proxies.
func servesNone(err error) bool { return answers404(err, fleetapi.ServesNone) }

// elsewhere reports whether an error means that a proxy is not connected to the process, or to those that it asked.
func elsewhere(err error) bool { return answers404(err, inspect.NotConnected) }

// final reports whether an error is a refusal that other processes would repeat: HTTP status 400, 401 or 403, or 404
// about a resource that the proxy does not have.
func final(err error) bool {
	switch statusOf(err) {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		return true
	case http.StatusNotFound:
		return !noEndpoint(err) && !servesNone(err) && !elsewhere(err)
	}
	return false
}
