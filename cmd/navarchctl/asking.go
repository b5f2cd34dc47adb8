package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
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

// anyOf reads JSON at a path from any process of the control plane. It queries the processes in the order of c.pages.
// When a process fails, or has not answered within hedgeAfter, anyOf also queries the next one. It returns the first
// answer. Later requests go first to the process that answered. If --server lists several addresses, anyOf adds the
// unreachable addresses to c.missing.
//
// A refusal that other processes would repeat (final) is returned at once. If all processes fail, the error joins their
// errors, and matches errNoAPI if a process answered 404. If ctx ends first, the error is that of ctx.
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
	all := errors.Join(failed...)
	if slices.ContainsFunc(failed, func(err error) bool { return statusOf(err) == http.StatusNotFound }) {
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

// final reports whether an error is a refusal that other processes would repeat: HTTP status 400, 401 or 403.
func final(err error) bool {
	code := statusOf(err)
	return code == http.StatusBadRequest || code == http.StatusUnauthorized || code == http.StatusForbidden
}
