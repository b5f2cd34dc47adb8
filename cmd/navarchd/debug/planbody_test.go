package debug

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"navarch.io/navarch/cmd/navarchd/debug/authz"
)

// hold reads a body without its length, and returns the function that ends the request.
func hold(t *testing.T, p *Pages, who authz.Caller) (done func(), status int, err error) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader(route("shop"))))
	body, done, status, err := p.PlanBody(t.Context(), who, httptest.NewRecorder(), r)
	if err == nil && !bytes.Equal(body, []byte(route("shop"))) {
		t.Fatalf("read %q", body)
	}
	return done, status, err
}

// The bodies of all callers together are bounded in bytes, those of tenants below that. One identity has one request,
// and one tenant two. Further requests are refused at once, and answered again once others are done.
func TestPlanBodiesAreBoundedTogether(t *testing.T) {
	p := New(Pages{Rules: &authz.Authorizer{}})
	var all []func()
	for i := range planBodiesTenant / MaxPlanBody {
		done, _, err := hold(t, p, tenantOf(fmt.Sprint("n", i)))
		if err != nil {
			t.Fatalf("tenant %d: %v", i, err)
		}
		all = append(all, done)
	}
	if done, status, err := hold(t, p, tenantOf("last")); status != http.StatusServiceUnavailable || !errors.Is(err, ErrPlanRoom) {
		t.Errorf("beyond the bound of tenants: %d, %v", status, err)
	} else {
		done()
	}
	for i := range (planBodies - planBodiesTenant) / MaxPlanBody {
		done, _, err := hold(t, p, authz.Caller{Name: fmt.Sprint("operator", i)})
		if err != nil {
			t.Fatalf("operator %d beside tenants: %v", i, err)
		}
		all = append(all, done)
	}
	if done, status, _ := hold(t, p, authz.Caller{Name: "another"}); status != http.StatusServiceUnavailable {
		t.Errorf("beyond the bound of all: %d", status)
	} else {
		done()
	}
	if release, err := p.PlanRoom(authz.Caller{}, 1); !errors.Is(err, ErrPlanRoom) {
		t.Errorf("for another replica: %v", err)
	} else {
		release()
	}
	for _, done := range all {
		done()
		done() // repeated calls do nothing
	}
	if p.room.all != 0 || p.room.tenants != 0 {
		t.Errorf("after all requests %d bytes are held, %d of tenants", p.room.all, p.room.tenants)
	}

	other := tenantOf("n0")
	other.Name += "-other"
	first, _, err := hold(t, p, tenantOf("n0"))
	if err != nil {
		t.Fatal(err)
	}
	if done, status, _ := hold(t, p, tenantOf("n0")); status != http.StatusTooManyRequests {
		t.Errorf("a second request of an identity: %d", status)
	} else {
		done()
	}
	second, _, err := hold(t, p, other)
	if err != nil {
		t.Errorf("another identity of the tenant: %v", err)
	}
	first()
	second()
}
