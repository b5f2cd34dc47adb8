package agent

import (
	"bytes"
	"math/big"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/ca/issue"
)

// list is an authority's revocation list, with serials.
func list(t testing.TB, a *issue.Authority, number int64, serials ...string) []byte {
	t.Helper()
	var revoked []issue.Revoked
	for _, s := range serials {
		revoked = append(revoked, issue.Revoked{Serial: s, At: time.Now()})
	}
	der, err := issue.CRL(a, big.NewInt(number), revoked, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return issue.EncodeCRL(der)
}

func roots(as ...*issue.Authority) (text []byte) {
	for _, a := range as {
		text = append(text, issue.EncodeCertificates(a.Roots...)...)
	}
	return text
}

// Pushed revocation lists reach Envoy. Of one issuer the newest list stays, even if a replica that lags behind pushes
// an older one. An invalid list changes nothing. A root without its list is trusted, and is not reported as held.
func TestRevocationLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := authority(t, 1), authority(t, 2)
		ca := &fakeCA{signer: one, began: time.Now()}
		a := startFake(t, ca, nil)
		<-a.Ready()
		check := func(what string, lists []byte, held ...*issue.Authority) {
			t.Helper()
			synctest.Wait()
			secrets, _ := a.hub.get()
			trust := secrets[trustName]
			if !bytes.Equal(trust.body.Value, trustSecret(bundleOf(a), lists, trust.roots).body.Value) {
				t.Errorf("%s: other lists are published, or other roots", what)
			}
			var want []string
			for _, h := range held {
				want = append(want, fingerprints(h.Roots)...)
			}
			if slices.Sort(want); !slices.Equal(trust.roots, want) {
				t.Errorf("%s: reported as held %v, want %v", what, trust.roots, want)
			}
		}
		push := func(roots, crl []byte, complaint string) {
			t.Helper()
			err := a.SetTrust(roots, crl)
			if (err != nil) != (complaint != "") || err != nil && !strings.Contains(err.Error(), complaint) {
				t.Errorf("pushed: %v, want %q", err, complaint)
			}
		}
		check("before a push", nil, one)
		old, newer := list(t, one, 1), list(t, one, 2, "abc")
		push(roots(one), newer, "")
		check("revoked", newer, one)
		push(roots(one), old, "")
		check("a replica lags", newer, one)
		for crl, complaint := range map[string]string{"junk": "not PEM", string(roots(one)): "CERTIFICATE", string(old) + string(newer): "two revocation lists"} {
			push(roots(one), []byte(crl), complaint)
		}
		push([]byte("junk"), old, "roots")
		check("not valid", newer, one)

		ca.set(func() { ca.bundle = []*issue.Authority{two} })
		a.Renew()
		check("the second root came with a certificate, without its list", newer, one)
		second := list(t, two, 1)
		push(roots(one, two), append(slices.Clone(old), second...), "")
		check("with its list", append(slices.Clone(newer), second...), one, two)
		push(roots(two), second, "")
		check("the first retired", second, two)
		push(roots(two), nil, "")
		check("no lists", nil, one, two) // the first is still in the configuration: without lists all that is trusted counts
	})
}

func bundleOf(a *Agent) (text []byte) {
	for _, r := range a.Roots() {
		text = append(text, encode(r)...)
	}
	return text
}

// FuzzLists: untrusted lists cause no panic, and an accepted list is passed on unchanged.
func FuzzLists(f *testing.F) {
	a := authority(f, 1)
	f.Add(list(f, a, 1, "abc"))
	f.Add(append(list(f, a, 1), list(f, authority(f, 2), 7)...))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := parseLists(text)
		if err != nil {
			return
		}
		again, err := parseLists(l.encode())
		if err != nil || len(again) != len(l) || !bytes.Equal(again.encode(), l.follow(again).encode()) {
			t.Errorf("%v: %d lists, then %d", err, len(l), len(again))
		}
	})
}

// A list that cannot be decoded is an error, although pem.Decode skips it: the lists in use stay.
func TestBrokenListIsAnError(t *testing.T) {
	broken := bytes.Replace(list(t, authority(t, 1), 1, "abc"), []byte("\n"), []byte("\n!"), 1)
	if l, err := parseLists(append(broken, list(t, authority(t, 2), 7)...)); err == nil {
		t.Errorf("no error, and %d lists", len(l))
	}
}
