package agent

import (
	"fmt"
	"testing"
)

// A namespace other than the proxy's has a share of the secrets, and all of these leave secrets for the proxy's own.
// Promise: security-gateways.md#make-a-gateway-fail
func TestFilesOfOtherNamespaces(t *testing.T) {
	h, _ := newFiles(t)
	taken := func(owner string) (n int) {
		for i := range maxNames {
			name := fmt.Sprintf("file-root:/none/%d", i)
			if owner != "" {
				name += "~~" + owner
			}
			if h.files.want(name) {
				n++
			}
		}
		return n
	}
	for i := range maxOther / maxOwned {
		if n := taken(fmt.Sprint("tenant", i)); n != maxOwned {
			t.Errorf("namespace %d has %d secrets, want %d", i, n, maxOwned)
		}
	}
	if n := taken("late"); n != 0 {
		t.Errorf("%d secrets beyond those of all other namespaces", n)
	}
	if n := taken(""); n != maxNames-maxOther {
		t.Errorf("the own namespace has %d secrets, want %d", n, maxNames-maxOther)
	}
	h.files.release("file-root:/none/0~~tenant0")
	if !h.files.want("file-root:/none/x~~late") {
		t.Error("no room came back")
	}
}
