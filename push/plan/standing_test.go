package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// For each proxy the state of a Secret is reported: which proxy wants it, that it is being opened and why that is slow,
// that it was sent, or why it is withheld. The report contains no private key.
func TestStanding(t *testing.T) {
	const name = "kubernetes://web"
	o := &opener{err: errors.New("the provider is away")}
	inBubble(t, Config{Opener: o, Authoriser: &judge{no: map[view.Identity]bool{other: true}}}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(tlsSecret(t, "shop/web", "one", "", "1"), used(t, "web"))
		join := func(n view.Node, ask ...string) *Proxy {
			t.Helper()
			p, err := l.Join(t.Context(), n, func(Path) {})
			if err != nil {
				t.Fatal(err)
			}
			p.SubscribeSecrets(t.Context(), ask, nil)
			synctest.Wait()
			return p
		}
		first, second := gateway("shop", "shop"), gateway("shop", "shop")
		first.ID, second.ID = "router~1~first", "router~2~second"
		one, two := join(first, name), join(second)
		at := model.Key{Kind: model.KindSecret, Namespace: "shop", Name: "web"}
		check := func(what string, p *Proxy, name string, want Standing, planned bool) {
			t.Helper()
			got := l.Standing(p, name)
			if text := fmt.Sprintf("%+v", got); strings.Contains(text, "key of") {
				t.Errorf("%s: it shows the private key: %s", what, text)
			}
			if got.Object != want.Object || got.Asked != want.Asked || got.Opening != want.Opening || (got.Failed > 0) != (want.Failed > 0) ||
				want.Why == "" && got.Why != "" || !strings.Contains(got.Why, want.Why) || !slices.Equal(got.Wanted, want.Wanted) || (got.Planned != nil) != planned {
				t.Errorf("%s: %+v", what, got)
			}
		}
		wanted := []string{first.ID}
		check("away", one, name, Standing{Object: at, Asked: true, Opening: true, Failed: 1, Why: "the provider is away", Wanted: wanted}, false)
		check("not asked for", two, name, Standing{Object: at, Wanted: wanted}, false)
		o.set(nil)
		pass(openPause)
		check("opened", one, name, Standing{Object: at, Asked: true, Wanted: wanted}, true)
		two.SubscribeSecrets(t.Context(), []string{name}, nil)
		check("of both", two, name, Standing{Object: at, Asked: true, Wanted: []string{first.ID, second.ID}}, true)

		o.set(errors.New("away again"))
		src.put(tlsSecret(t, "shop/web", "two", "", "2"))
		pass(time.Second)
		check("the next one", one, name, Standing{Object: at, Asked: true, Opening: true, Failed: 1, Why: "away again", Wanted: []string{first.ID, second.ID}}, true)

		one.SubscribeSecrets(t.Context(), []string{"kubernetes://none"}, nil)
		check("none", one, "kubernetes://none", Standing{Asked: true, Why: "there is no Secret shop/none", Wanted: wanted}, false)
		check("another's", one, "kubernetes://bank/web", Standing{Why: "does not lead to a Secret of its namespace shop"}, false)
		sidecar := gateway("shop", "shop")
		sidecar.Verified, sidecar.ID = other, "router~3~third"
		all := []string{first.ID, second.ID, sidecar.ID}
		check("without the right", join(sidecar, name), name, Standing{Object: at, Asked: true, Why: "may not list Secrets", Wanted: all}, false)
		check("on plain text", join(gateway("shop", ""), name), name, Standing{Why: "not authenticated"}, false)
		check("of another namespace", join(gateway("shop", "bank"), name), name, Standing{Why: "belongs to namespace bank"}, false)
	})
}
