package files

import (
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// irregularFiles creates entries in a folder that are not files, and returns the expected report of each.
func irregularFiles(t *testing.T, dir string) map[string]string {
	do(t, os.Symlink("nowhere.yaml", dir+"/gone.yaml"))
	do(t, os.Symlink("loop.yaml", dir+"/loop.yaml"))
	do(t, os.Symlink("/dev/null", dir+"/null.yml"))
	do(t, syscall.Mkfifo(dir+"/pipe.yaml", 0o600))
	do(t, syscall.Mkfifo(dir+"/notes.txt", 0o600)) // by its name not ours
	socket, err := net.Listen("unix", dir+"/socket.json")
	do(t, err)
	t.Cleanup(func() { socket.Close() })
	return map[string]string{
		"gone.yaml": "cannot be read: it is a link to nowhere.yaml, which does not exist", "loop.yaml": "too many levels of symbolic links",
		"null.yml": "cannot be read: it is a device, not a file", "pipe.yaml": "cannot be read: it is a named pipe, not a file",
		"socket.json": "cannot be read: it is a socket, not a file",
	}
}

// Pipes and devices are reported by name and block nothing. All other files are read.
func TestWhatIsNoFileIsReported(t *testing.T) {
	dir := t.TempDir()
	want := irregularFiles(t, dir)
	put(t, dir+"/a.yaml", pods("a"))
	got, problems, err := Read(dir, "", nil)
	if err != nil || !slices.Equal(events(got), []string{"put a", "synced"}) || len(problems) != len(want) {
		t.Errorf("events %q, problems %v, error %v", events(got), problems, err)
	}
	for _, p := range problems {
		if text := want[p.Location]; text == "" || !strings.Contains(p.String(), text) || !strings.HasPrefix(p.String(), p.Location+": ") {
			t.Errorf("%q, want %q", p, text)
		}
	}
}

// A file that becomes a pipe or a broken link leaves its objects in effect, and is read again when it is a file.
func TestAFileBecomesSomethingElse(t *testing.T) {
	l := start(t, func(dir string) {
		put(t, dir+"/a.yaml", pods("a"))
		put(t, dir+"/b.yaml", pods("b"))
		put(t, dir+"/c.yaml", pods("c"))
	})
	l.want("put a", "put b", "put c", "synced")
	do(t, syscall.Mkfifo(l.dir+"/pipe", 0o600))
	do(t, os.Rename(l.dir+"/pipe", l.dir+"/a.yaml"))
	do(t, os.Symlink("nowhere", l.dir+"/link"))
	do(t, os.Rename(l.dir+"/link", l.dir+"/b.yaml"))
	l.problems("a.yaml: cannot be read: it is a named pipe", "b.yaml: cannot be read: it is a link to nowhere")
	l.write("c.yaml", pods("c=2"))
	l.want("put c=2") // and nothing about the others
	for _, name := range []string{"a", "b"} {
		do(t, os.Remove(l.dir+"/"+name+".yaml"))
		l.write(name+".yaml", pods(name+"=2"))
		l.want("put " + name + "=2")
	}
	l.problems()
}

// problems waits until the folder has exactly the problems that begin with these texts.
func (l *live) problems(want ...string) {
	l.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(time.Minute); ; <-tick.C {
		got := l.source.Problems()
		all := len(got) == len(want)
		for i := 0; all && i < len(want); i++ {
			all = strings.HasPrefix(got[i].String(), want[i])
		}
		if all {
			return
		}
		if time.Now().After(limit) {
			l.t.Fatalf("problems %v, want %q", got, want)
		}
	}
}
