package main

import (
	"log/slog"
	"net/http"
	"net/netip"
	"testing"

	"navarch.io/navarch/store/apiserver/apiservertest"
)

// The known addresses are those that the API servers publish. While these cannot be read, the last ones stay in use.
// Promise: security-admission.md#bytes
func TestAPIServersAddresses(t *testing.T) {
	answer := `{"endpoints": [{"addresses": ["10.1.2.3"]}, {"addresses": ["2001:db8::1", "no address"]}]}`
	api := apiservertest.Play(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != apiServersPath || answer == "" {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer)) // the client would report it
	})
	a := &apiServers{api: api, log: slog.New(slog.DiscardHandler)}
	has := func(text string) bool { return a.has(netip.MustParseAddr(text)) }
	if has("10.1.2.3") {
		t.Error("nothing is known yet")
	}
	if err := a.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	answer = ""
	if a.read(t.Context()) == nil {
		t.Error("it may not be read")
	}
	if !has("10.1.2.3") || !has("::ffff:10.1.2.3") || !has("2001:db8::1") || has("10.1.2.4") {
		t.Error("the addresses are others")
	}
}
