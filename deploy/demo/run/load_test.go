package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// flow is one kind of traffic: requests of its kind are sent steadily, and each must come out as it should.
type flow struct {
	name      string
	url, host string
	fresh     bool   // a connection for each request; else they are kept
	caller    string // identity that the application must see; empty: none
	refused   bool   // must never be answered

	client       *http.Client
	mu           sync.Mutex
	sent, failed int
	first        string // failure
}

const perFlow = 6 // requests a second

// ask sends one request.
func (f *flow) ask(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, nil)
	if err != nil {
		return err
	}
	req.Host = f.host
	res, err := f.client.Do(req)
	if err != nil {
		if f.refused {
			return nil
		}
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	var answer struct{ Name, Caller string }
	switch {
	case f.refused:
		return fmt.Errorf("status %d: %.200s", res.StatusCode, body)
	case err != nil:
		return err
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("status %d: %.200s", res.StatusCode, body)
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Name != "server" {
		return fmt.Errorf("not the server's answer: %.200s %w", body, errors.Join(err))
	}
	if f.caller == "" && answer.Caller != "" || !strings.Contains(answer.Caller, f.caller) {
		return fmt.Errorf("the server sees %q, want %q", answer.Caller, f.caller)
	}
	return nil
}

func (f *flow) once() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	began := time.Now()
	err := f.ask(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent++
	if err == nil {
		return
	}
	f.failed++
	if f.first == "" {
		f.first = fmt.Sprintf("at %s after %v: %v", began.Format("15:04:05.000"), time.Since(began).Round(time.Millisecond), err)
	}
}

// under sends all flows until the returned function is called.
func under(n netns, flows []*flow) (stop func()) {
	quit := make(chan struct{})
	var all sync.WaitGroup
	for _, f := range flows {
		f.client = &http.Client{Transport: &http.Transport{DialContext: n.dial, DisableKeepAlives: f.fresh}}
		const senders = 2
		for range senders {
			all.Go(func() {
				tick := time.NewTicker(time.Second * senders / perFlow)
				defer tick.Stop()
				for {
					select {
					case <-quit:
						return
					case <-tick.C:
						f.once()
					}
				}
			})
		}
	}
	return sync.OnceFunc(func() {
		close(quit)
		all.Wait()
	})
}

// judge requires that no request failed, and that there was enough traffic for a statement.
func judge(t *testing.T, flows []*flow, least int) {
	t.Helper()
	for _, f := range flows {
		t.Logf("%-44s %5d requests, %d failed", f.name, f.sent, f.failed)
		if f.failed > 0 {
			t.Errorf("%s: %d of %d failed, the first %s", f.name, f.failed, f.sent, f.first)
		}
		if f.sent < least {
			t.Errorf("%s: %d requests are too few to tell, want %d", f.name, f.sent, least)
		}
	}
}
