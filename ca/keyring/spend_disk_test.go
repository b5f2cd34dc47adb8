package keyring

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A renewal that the disk does not have is not handed out, and nothing after it (issue 12, item 16: journalled with fsync): what takes the
// bytes and cannot be synced, a pipe (fsync(2), EINVAL), is in the place of the file.
func TestRenewalsWaitForTheDisk(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	k := &Keyring{allowances: &spender{purse: newPurse(allowance("one", &record{Epochs: []epoch{{Number: 1, Status: Active}}}, 10, now)), file: write}}
	k.cfg.Now = func() time.Time { return now }
	k.current.Store(&published{state: &State{}})
	for i, want := range []error{syscall.EINVAL, ErrAllowance} {
		err := k.Spend(Issue{Serial: "2", Identity: "x", Epoch: 1, Previous: "1", NotAfter: now.Add(2 * time.Hour)}, now.Add(time.Hour))
		if !errors.Is(err, want) || len(k.allowances.issued) != 0 {
			t.Errorf("renewal %d: %v; %d are issued", i, err, len(k.allowances.issued))
		}
	}
	line := make([]byte, 1000)
	if n, err := read.Read(line); err != nil || !strings.HasSuffix(string(line[:n]), "\n") || !strings.Contains(string(line[:n]), `"2"`) {
		t.Errorf("written is %q, %v", line[:n], err)
	}
}
