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
)

// patience is how long one page may take.
const patience = 30 * time.Second

// page is an address that is asked over HTTP.
type page struct {
	address string       // for messages
	by      string       // how the address came, for messages: a flag, a context
	what    string       // for messages: "navarchd's debug pages"
	help    string       // what to do where nobody answers
	url     string       // without a path; empty: the address
	client  *http.Client // nil: the usual one
}

// server is navarchd's debug pages at an address. by is how the address came; roles whose processes have what is asked for, for messages, empty: every role.
func server(address, by, roles string) page {
	return page{address: address, what: debugPages, by: by, help: "is navarchd running there" + roles + ", or is the port forwarded?"}
}

func admin(address string) page {
	return page{address: address, what: "Envoy's admin interface", by: "--envoy",
		help: "it listens on the loopback address of its own network namespace, as a rule on port 15000"}
}

// statusError is an answer that is none.
type statusError struct {
	status int
	text   string // with the address
	said   string // by the other side
}

func (e statusError) Error() string { return e.text }

// get reads a path, as ask does.
func (p page) get(ctx context.Context, path string) ([]byte, error) {
	return p.ask(ctx, http.MethodGet, path, "", nil)
}

// ask sends a request, with a token unless that is empty. Errors say which address was asked, by which flag, and what the other side said; statusError: it answered
// with another status than 200 and 202.
func (p page) ask(ctx context.Context, method, path, token string, content []byte) ([]byte, error) {
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
	res, err := cmp.Or(p.client, http.DefaultClient).Do(req)
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

// read reads a JSON page.
func (p page) read(ctx context.Context, path string, into any) error {
	body, err := p.get(ctx, path)
	if err != nil {
		return err
	}
	answer := json.NewDecoder(bytes.NewReader(body))
	answer.UseNumber() // a revision is no floating point number
	if err := answer.Decode(into); err != nil {
		return fmt.Errorf("%s at %s (%s): %s is not what was expected: %w", p.what, p.address, p.by, path, err)
	}
	return nil
}
