package delta

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// A story is a script, one event or expectation a line; testdata/stories.txt holds them.
//
//	target CDS a@1 b@2 EDS a@1      the newest set; types that are not named stay, "CDS" alone is empty
//	s@?                             an existing secret whose content is pending
//	r@1(a)                          a resource that names cluster a, or a cluster that needs secret a
//	r@1{v:a,w:b}                    a route whose virtual hosts v and w lead to clusters a and b
//	c@cold1                         a cluster that waits for a dependency outside the story
//	l@guard1                        a listener that authorises requests
//	f@1/s                           a resource with the stand-in f@s, for clients that refuse it
//	> CDS +a -b a=1 ack 3           a request: subscribe, unsubscribe, initial version, ACK
//	> CDS nack 3 words              a NACK
//	< CDS 1 a@1 -b                  the next response, with its nonce; "due" if it is outside the credit
//	= nack CDS a@2 good 1           the reports of the last request
//	= took yes                      Took: all configuration is acknowledged; settled and maywarm likewise
//	= wake 1.5s                     when Next must be called again: a duration, or never
//	later 2s                        time passes
//	endresume | credit 100 | refuse CDS a@1 | release CDS a@1 | sotw
//	fast a b                        the hosts whose endpoints do not wait, in the next targets
//	urgent                          until "all" only urgent resources are sent
//
// Before each event and at the end there must be no further response.
func TestStories(t *testing.T) {
	all, err := os.ReadFile("testdata/stories.txt")
	if err != nil {
		t.Fatal(err)
	}
	stories := strings.Split(string(all), "\n-- ")[1:]
	for _, s := range stories {
		name, script, _ := strings.Cut(s, " --\n")
		t.Run(name, func(t *testing.T) { (&story{t: t}).play(script) })
	}
	if len(stories) < 30 {
		t.Errorf("only %d stories were found", len(stories))
	}
}

type story struct {
	t        *testing.T
	line     string
	cfg      Config
	set      manifest.Set
	state    *State
	reports  []Report
	urgent   bool
	withheld map[string]bool
	clock    time.Time
}

func (s *story) play(script string) {
	lines := bufio.NewScanner(strings.NewReader(script))
	for n := 1; lines.Scan(); n++ {
		s.line = fmt.Sprintf("line %d: %s", n, lines.Text())
		text, _, _ := strings.Cut(lines.Text(), "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		if words[0] != "<" && words[0] != "=" {
			s.quiet()
		}
		s.step(words[0], words[1:])
	}
	s.line = "the end"
	s.quiet()
}

func (s *story) step(verb string, args []string) {
	switch verb {
	case "credit":
		fmt.Sscan(args[0], &s.cfg.Credit)
	case "sotw":
		s.cfg.SotW = true
	case "fast":
		s.set.FastHosts = args
	case "urgent", "all":
		s.urgent = verb == "urgent"
	case "refuse":
		if s.withheld == nil {
			s.withheld = map[string]bool{}
		}
		s.withheld[args[0]+thing(typeOf(args[0]), args[1]).Version] = true
	case "release":
		delete(s.withheld, args[0]+thing(typeOf(args[0]), args[1]).Version)
	case "target":
		s.target(args)
	case "later":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			s.t.Fatal(err)
		}
		s.clock = s.clock.Add(d)
		s.state.Tick(s.clock)
	case "endresume":
		s.state.EndResume()
	case ">":
		s.request(args)
	case "<":
		if got, want := s.next(), strings.Join(args, " "); got != want {
			s.t.Fatalf("%s\n got: %s", s.line, got)
		}
	case "=":
		want := strings.Join(args, " ")
		if is, asked := map[string]func() bool{"took": s.state.Took, "settled": s.state.Settled, "maywarm": s.state.MayWarm}[args[0]]; asked {
			if is() != (args[1] == "yes") {
				s.t.Fatal(s.line)
			}
			break
		}
		if args[0] == "wake" {
			at, ok := s.state.Wake()
			if got := at.Sub(s.clock).String(); !ok && args[1] != "never" || ok && got != args[1] {
				s.t.Fatalf("%s\n got: %s %v", s.line, got, ok)
			}
			break
		}
		if len(s.reports) == 0 {
			s.t.Fatalf("%s: no report", s.line)
		}
		if got := written(s.reports[0]); got != want {
			s.t.Fatalf("%s\n got: %s", s.line, got)
		}
		s.reports = s.reports[1:]
	default:
		s.t.Fatalf("%s: unknown", s.line)
	}
}

// quiet fails if there is an unexpected response to send.
func (s *story) quiet() {
	s.t.Helper()
	if s.state == nil {
		return
	}
	if got := s.next(); got != "nothing" {
		s.t.Fatalf("before %s\n got: %s", s.line, got)
	}
}

func (s *story) target(args []string) {
	t := xds.Unknown
	var list []*xds.Resource
	flush := func() {
		if t != xds.Unknown {
			s.set.Types[t] = evolve(s.set.Types[t], list)
		}
		list = nil
	}
	for _, a := range args {
		if next := typeOf(a); next != xds.Unknown {
			flush()
			t = next
			continue
		}
		list = append(list, thing(t, a))
	}
	flush()
	s.set.Revision++
	set := s.set
	if s.state == nil {
		s.state, s.clock = New(s.cfg, &set), time.Unix(1000, 0)
		s.state.Tick(s.clock)
		s.state.Withhold(func(r *xds.Resource) bool { return s.withheld[r.Type.String()+r.Version] })
	} else {
		s.state.Target(&set)
	}
}

func (s *story) request(args []string) {
	r := Request{Type: typeOf(args[0])}
	var sub, unsub []string
	initial := map[string]string{}
	for i := 1; i < len(args); i++ {
		switch a := args[i]; {
		case a == "ack":
			i++
			r.Nonce = args[i]
		case a == "nack":
			r.Nonce, r.Failed, r.Error = args[i+1], true, strings.ReplaceAll(strings.Join(args[i+2:], " "), `\n`, "\n")
			i = len(args)
		case a[0] == '+':
			sub = append(sub, a[1:])
		case a[0] == '-':
			unsub = append(unsub, a[1:])
		case strings.HasPrefix(a, "version="):
			var held []*xds.Resource
			for _, name := range strings.Split(a[len("version="):], ",") {
				held = append(held, thing(r.Type, name))
			}
			r.Version = setVersion(held)
		default:
			name, version, _ := strings.Cut(a, "=")
			initial[name] = thing(r.Type, name+"@"+version).Version
		}
	}
	r.Subscribe, r.Unsubscribe = slices.Values(sub), slices.Values(unsub)
	r.Initial = func(yield func(string, string) bool) {
		for name, version := range initial {
			if !yield(name, version) {
				return
			}
		}
	}
	s.reports = s.state.Request(r, nil)
}

func (s *story) next() string {
	next := s.state.Next
	if s.urgent {
		next = s.state.Urgent
	}
	reply, ok := next()
	if !ok {
		return "nothing"
	}
	words := []string{reply.Type.String(), reply.Nonce}
	for _, r := range reply.Set {
		words = append(words, label(r))
	}
	for _, name := range reply.Removed {
		words = append(words, "-"+name)
	}
	if reply.Due {
		words = append(words, "due")
	}
	return strings.Join(words, " ")
}

func written(r Report) string {
	switch r.Kind {
	case Acked:
		return fmt.Sprintf("ack %v %s revision %d", r.Type, r.Nonce, r.Revision)
	case Expired:
		return fmt.Sprintf("expired %v %s", r.Type, r.Nonce)
	case Nacked:
	}
	words := fmt.Sprintf("nack %v", r.Type)
	if r.Name != "" {
		words += " " + r.Name + "@" + versions[r.Version]
	}
	if r.Good != "" {
		words += " good " + versions[r.Good]
	}
	return words
}

func typeOf(short string) xds.Type {
	for t := range xds.NumTypes {
		if t.String() == short {
			return t
		}
	}
	return xds.Unknown
}

// Envoy may print the refused message: if it is a Secret, nothing of it is stored.
func TestRefusedSecretsAreNotPrinted(t *testing.T) {
	s := New(Config{}, &manifest.Set{Types: [xds.NumTypes]manifest.Stack{xds.Secret: {manifest.Of(thing(xds.Secret, "s@1"))}}})
	s.Request(Request{Type: xds.Secret, Subscribe: slices.Values([]string{"s"})}, nil)
	r, _ := s.Next()
	for text, want := range map[string]string{
		"goo.gle/debugstr\nname: \"s\"\nprivate_key { inline_string: \"KEY\" }\n: Proto constraint validation failed (Secret: why)": "Proto constraint validation failed (Secret: why)",
		"Failed to load private key from <inline>, Cause: MISMATCH":                                                                 "Failed to load private key from <inline>, Cause: MISMATCH",
		"bad secret\n-----BEGIN KEY": "bad secret",
	} {
		m := Request{Type: xds.Secret, Nonce: r.Nonce, Failed: true, Error: text}
		if got := s.Request(m, nil); len(got) != 1 || got[0].Name != "s" || got[0].Text != want {
			t.Errorf("%+v", got)
		}
		s = New(Config{}, s.target)
		s.Request(Request{Type: xds.Secret, Subscribe: slices.Values([]string{"s"})}, nil)
		r, _ = s.Next()
	}
}

func TestExcerptKeepsBothEnds(t *testing.T) {
	got := excerpt(xds.Cluster, "goo.gle/debugstr\n"+strings.Repeat("é", 5000)+"\n: the reason")
	if len(got) > maxText || !strings.HasPrefix(got, "goo.gle") || !strings.HasSuffix(got, ": the reason") {
		t.Errorf("%d bytes: %s", len(got), got)
	}
}

// Responses to agents count against the same credit.
func TestDynamicTypesShareTheCredit(t *testing.T) {
	set := &manifest.Set{Revision: 1}
	s := New(Config{Dynamic: []string{"navarch.io/test"}}, set)
	s.Open(Dynamic(0))
	s.Offer(Dynamic(0), one(t, "A", strings.Repeat("x", Credit)))
	s.Request(Request{Type: Dynamic(0)}, nil)
	large, ok := s.Next()
	if !ok || large.URL != "navarch.io/test" {
		t.Fatalf("%v", large)
	}
	s.Request(Request{Type: xds.Cluster}, nil)
	if r, ok := s.Next(); ok {
		t.Errorf("sent over the credit: %v", r)
	}
	s.Request(Request{Type: Dynamic(0), Nonce: large.Nonce}, nil)
	if _, ok := s.Next(); !ok {
		t.Error("not sent within the credit")
	}
}

// A type that an urgent response skips keeps its revision, because its changes still wait for their turn.
func TestUrgentSaysNothingOfTheRest(t *testing.T) {
	before, after := &manifest.Set{Revision: 1}, &manifest.Set{Revision: 2}
	before.Types[xds.Listener] = evolve(manifest.Stack{}, []*xds.Resource{thing(xds.Listener, "l@1")})
	after.Types[xds.Listener] = evolve(before.Types[xds.Listener], []*xds.Resource{thing(xds.Listener, "l@2")})
	s := New(Config{}, before)
	for _, typ := range []xds.Type{xds.Cluster, xds.Listener} {
		s.Request(Request{Type: typ}, nil)
		r, _ := s.Next()
		s.Request(Request{Type: typ, Nonce: r.Nonce}, nil)
	}
	s.Target(after)
	if r, ok := s.Urgent(); ok {
		t.Fatalf("urgent: %v", r)
	}
	if i := s.Info(xds.Listener); i.SentRevision != 1 || i.AckedRevision != 1 {
		t.Errorf("sent %d, acknowledged %d of the listeners", i.SentRevision, i.AckedRevision)
	}
	if r, ok := s.Next(); !ok || r.Type != xds.Listener || r.Revision != 2 {
		t.Errorf("then %v", r)
	}
}
