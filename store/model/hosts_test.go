package model

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Covers agrees with Wildcards for each pair.
func TestCovers(t *testing.T) {
	hosts := []string{"*", "*.com", "*.a.com", "*-b.com", "a.com", "x.a.com", "xa.com", "x-b.com",
		"y.x.a.com", ".com", "*a.com", "", "com", "*."}
	for _, wildcard := range hosts {
		for _, host := range hosts {
			want := false
			for one := range Wildcards(host) {
				want = want || one == wildcard
			}
			if got := Covers(wildcard, host); got != want {
				t.Errorf("%q covers %q: %t", wildcard, host, got)
			}
		}
	}
}

// A server's host names those who may bind to it. Case has no meaning.
func TestServerHost(t *testing.T) {
	for text, want := range map[string][2]string{
		"a.Test": {"", "a.test"}, "*/a.test": {"", "a.test"}, "./a.test": {"own", "a.test"}, "shop/*.a.test": {"shop", "*.a.test"},
		"~/a.test": {"~", "a.test"}, "*/*": {"", "*"}, "*": {"", "*"}, "": {"", ""},
		"a.test.": {"", "a.test"}, "./A.test.": {"own", "a.test"}, "*.test.": {"", "*.test"},
	} {
		if namespace, name := ServerHost(text, "own"); [2]string{namespace, name} != want {
			t.Errorf("%q: %q, %q, want %q", text, namespace, name, want)
		}
	}
}

// Records of each kind whose message has a field hosts or host are found by the values of the field.
func TestHostsOfEveryKind(t *testing.T) {
	found := 0
	for _, kind := range Kinds() {
		body := NewBody(kind)
		if body == nil {
			t.Errorf("%v has no body: its row in emptyBody (body.go) is missing", kind)
			continue
		}
		message, value := body.ProtoReflect(), protoreflect.ValueOfString("a.test")
		if list := message.Descriptor().Fields().ByName("hosts"); list != nil {
			message.Mutable(list).List().Append(value)
		} else if one := message.Descriptor().Fields().ByName("host"); one != nil {
			message.Set(one, value)
		} else {
			continue
		}
		found++
		r, err := New(Key{Kind: kind, Namespace: "shop", Name: "a"}, 0, body)
		if err != nil {
			t.Errorf("%v: %v", kind, err)
		} else if got := HostsOf(r); !slices.Equal(got, []string{"a.test"}) {
			t.Errorf("%v has hosts and is found by %q: its case in HostsOf (hosts.go) is missing", kind, got)
		}
	}
	if found < 5 {
		t.Errorf("%d kinds have hosts, at least 5 do", found)
	}
}
