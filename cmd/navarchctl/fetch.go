package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"navarch.io/navarch/cmd/navarchctl/progress"
)

// patience bounds the request for one page.
const patience = 30 * time.Second

// plain is the client for addresses that are reached without a cluster.
var plain = &http.Client{Transport: progress.Transport(http.DefaultTransport)}

// page is an address that is queried over HTTP.
type page struct {
	address string       // for messages
	by      string       // origin of the address, for messages: a flag, a context
	what    string       // for messages: "navarchd's debug pages"
	help    string       // advice if it does not answer
	url     string       // without a path; empty: the address
	client  *http.Client // nil: the default client
}

// server returns navarchd's debug pages at an address. by is the origin of the address; roles names the roles of
// processes with the pages, for messages; empty: every role.
func server(address, by, roles string) page {
	return page{address: address, what: debugPages, by: by, help: "is navarchd running there" + roles + ", or is the port forwarded?"}
}

func admin(address string) page {
	return page{address: address, what: "Envoy's admin interface", by: "--envoy",
		help: "it listens on the loopback address of its own network namespace, as a rule on port 15000"}
}

// statusError is a response with an unexpected status.
type statusError struct {
	status int
	text   string // includes the address
	said   string // response of the server
}

func (e statusError) Error() string { return e.text }

// get requests a path, as ask does.
func (p page) get(ctx context.Context, path string) ([]byte, error) {
	return p.ask(ctx, http.MethodGet, path, "", nil)
}

// ask sends a request, with a token unless it is empty. Errors name the address, the flag that it came from, and the
// response. statusError: the status is neither 200 nor 202.
func (p page) ask(ctx context.Context, method, path, token string, content []byte) ([]byte, error) {
	return p.within(ctx, patience, method, path, token, content)
}

// within is ask with a time of its own.
func (p page) within(ctx context.Context, patience time.Duration, method, path, token string, content []byte) ([]byte, error) {
	address := cmp.Or(p.url, p.address)
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address+path, bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", p.by, p.address, err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := cmp.Or(p.client, plain).Do(req)
	if err != nil {
		return nil, p.unreachable(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, p.unreachable(err)
	}
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusAccepted {
		text := strings.TrimSpace(string(body))
		said := text
		switch res.StatusCode {
		case http.StatusNotFound, http.StatusBadRequest:
		case http.StatusUnauthorized:
			text += ": ask from the machine that navarchd runs on (kubectl port-forward does)"
		default:
			text = res.Status + ": " + text
		}
		return nil, statusError{res.StatusCode, fmt.Sprintf("%s at %s: %s", p.what, p.address, text), said}
	}
	return body, nil
}

func (p page) unreachable(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return fmt.Errorf("cannot reach %s at %s (%s): %w; %s", p.what, p.address, p.by, err, p.help)
}

// read decodes a JSON page.
func (p page) read(ctx context.Context, path string, into any) error {
	body, err := p.get(ctx, path)
	if err != nil {
		return err
	}
	answer := json.NewDecoder(bytes.NewReader(body))
	answer.UseNumber() // a revision is not a floating point number
	if err := answer.Decode(into); err != nil {
		return fmt.Errorf("%s at %s (%s): %s is not what was expected: %w", p.what, p.address, p.by, path, err)
	}
	return nil
}
