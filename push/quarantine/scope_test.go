package quarantine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/xds"
)

const shopWeb = "spiffe://mesh/ns/shop/sa/web"

// reportOf returns a report of one Pod of an identity.
func reportOf(identity, pod string) Report {
	r := report(identity, "")
	r.By, r.Credential = identity, CredentialOf(identity, pod)
	return r
}

func (p *play) refusedBy(identity string, pods ...string) {
	for _, pod := range pods {
		p.Report(0, reportOf(identity, pod))
	}
}

// from reports whether the version is withheld from a stream of an identity.
func (p *play) from(identity string) bool {
	return slices.ContainsFunc(p.WithheldFrom(bad.View, identity, "", 99), func(k Key) bool { return k.Of("") == bad })
}

// A version that three Pods of one identity refuse is withheld from this identity only, and is listed with it. Repeated
// refusals of one Pod do not suffice. An acknowledged retry releases the version. Reports to other replicas do not
// change.
// Promise: security-limits.md#refused-resources
func TestOneIdentityIsWithheldFrom(t *testing.T) {
	p := newPlay(t)
	p.refusedBy(shopWeb, "a", "a", "b", "a")
	if p.from(shopWeb) {
		t.Error("two Pods withhold it")
	}
	p.refusedBy(shopWeb, "c")
	p.want(false, "")
	if !p.from(shopWeb) || p.from("spiffe://mesh/ns/shop/sa/other") || p.from("") {
		t.Errorf("withheld from the identity: %v, from another one: %v, from nobody's: %v", p.from(shopWeb), p.from("spiffe://mesh/ns/shop/sa/other"), p.from(""))
	}
	all := p.Withheld()
	if len(all) != 1 || all[0].Identity != shopWeb || all[0].RefusedBy != 3 || !strings.Contains(p.log.String(), shopWeb) {
		t.Errorf("%+v\n%s", all, p.log.String())
	}
	if i := slices.IndexFunc(p.shared, func(r Report) bool { return r.Identity != "" || r.Reporter != ReporterOf(shopWeb, "") }); i >= 0 || len(p.shared) != 5 {
		t.Errorf("shared: %+v", p.shared)
	}
	p.pass(DefaultPause)
	own := bad.Of(shopWeb)
	d := reportOf(shopWeb, "d")
	d.Key, d.Reporter, d.Accepted = own, Reporter(d.Credential), true
	if p.Due(bad, "") || !p.Due(own, "") || p.Suits(own, "", d.Reporter) != Best || !p.Begin(own, "", d.Reporter, 7) {
		t.Fatal("it is not retried by another Pod")
	}
	p.Report(7, d)
	if p.from(shopWeb) || !slices.Equal(p.Resumed(), []Key{own}) || len(p.shared) != 5 {
		t.Error("an acknowledgement does not release it")
	}
}

// A version that is withheld from all takes precedence: only this is retried, and when it is released, the withholding
// from one identity applies.
func TestWithheldFromAllGoesBefore(t *testing.T) {
	p := newPlay(t)
	p.refusedBy(shopWeb, "a", "b", "c")
	p.refuse("", "two", "three")
	p.want(true, "")
	if got := p.WithheldFrom(bad.View, shopWeb, "", 99); len(got) != 1 || got[0] != bad {
		t.Errorf("withheld from the identity: %+v", got)
	}
	p.pass(DefaultPause)
	if !p.Due(bad, "") || p.Due(bad.Of(shopWeb), "") {
		t.Error("both are retried")
	}
	p.retry("four", "", true)
	p.want(false, "")
	if !p.from(shopWeb) || p.from("four") || !p.Due(bad.Of(shopWeb), "") {
		t.Error("what is withheld from the identity alone does not count")
	}
}

// Versions that are withheld from one identity only have limits of their own, for the identity and for each of its
// credentials, and are forgotten after a while.
// Promise: security-limits.md#refused-resources
func TestBoundsOfOneIdentity(t *testing.T) {
	p := newPlay(t)
	own := func() (n int) {
		for k := range p.state.entries {
			if k.Identity != "" {
				n++
			}
		}
		return n
	}
	refuse := func(pod string, version int) {
		p.now = p.now.Add(time.Microsecond)
		r := reportOf(shopWeb, pod)
		r.Key = Key{View: "shop", Type: xds.Cluster, Name: fmt.Sprint("made up ", version), Version: "v"}
		p.Report(0, r)
	}
	for i := range 128 {
		refuse("greedy", i)
	}
	if n := own(); n != 64 {
		t.Errorf("%d versions of one Pod", n)
	}
	for _, pod := range []string{"b", "c"} {
		refuse(pod, 192) // another Pod still has places
	}
	if n := own(); n != 65 {
		t.Errorf("%d versions with another Pod's", n)
	}
	for pod := range 100 {
		for i := range 64 {
			refuse(fmt.Sprint(pod), 1000+pod*1000+i)
		}
	}
	if n := own(); n != 256 {
		t.Errorf("%d versions of one identity", n)
	}
	p.pass(DefaultKeep)
	if !p.state.Empty() || len(p.state.own)+len(p.state.refused) > 0 {
		t.Errorf("%d identities and %d reporters are left", len(p.state.own), len(p.state.refused))
	}
}
