package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Init becomes a container if this process was started as one, and does not return then. Every program that starts
// containers must call it first, because it is the program that runs in the new namespaces.
func Init() {
	if len(os.Args) == 0 || os.Args[0] != argv0 {
		return
	}
	runtime.LockOSThread()
	settings, report := os.NewFile(3, "settings"), os.NewFile(4, "report")
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	var spec Spec
	err := json.NewDecoder(settings).Decode(&spec)
	if err == nil {
		err = execute(spec)
	}
	fmt.Fprint(report, err)
	os.Exit(128)
}

// execute replaces this process by the program of a container; it returns only after an error.
func execute(s Spec) error {
	if err := s.makeRoot(); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	if err := os.MkdirAll(orRoot(s.Dir), 0o755); err != nil {
		return err
	}
	if err := os.Chdir(orRoot(s.Dir)); err != nil {
		return err
	}
	if s.ReadOnlyRoot {
		if err := unix.MountSetattr(unix.AT_FDCWD, "/", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("read-only root: %w", err)
		}
	}
	path, err := find(s.Args[0], s.Env, s.Dir)
	if err != nil {
		return err
	}
	if err := s.setUser(); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", path, unix.Exec(path, s.Args, s.Env))
}

func (s Spec) setUser() error {
	if s.UID == 0 && s.GID == 0 {
		return nil
	}
	groups := make([]int, len(s.Groups))
	for i, g := range s.Groups {
		groups[i] = int(g)
	}
	if err := errors.Join(unix.Setgroups(groups), unix.Setresgid(int(s.GID), int(s.GID), int(s.GID)),
		unix.Setresuid(int(s.UID), int(s.UID), int(s.UID))); err != nil {
		return fmt.Errorf("become user %d, group %d: %w", s.UID, s.GID, err)
	}
	return nil
}

// etc are the files and folders of the machine's /etc that programs need; all others are the container's own.
var etc = []string{"passwd", "group", "nsswitch.conf",
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "protocols", "services", "localtime", "mime.types",
	"alternatives", "ssl", "ca-certificates", "pki", "iptables", "ethertypes"}

// makeRoot creates the root file system and enters it.
func (s Spec) makeRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", s.Root, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	for _, step := range []func() error{s.machine, s.devices, s.programs, s.volumes} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := os.Chdir(s.Root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	return unix.Unmount(".", unix.MNT_DETACH)
}

// machine mounts the machine's programs, and creates the folders that every image has.
func (s Spec) machine() error {
	for _, dir := range []string{"tmp", "var/tmp", "var/log", "var/lib", "run", "root", "home", "etc", "proc", "sys", "dev"} {
		if err := os.MkdirAll(filepath.Join(s.Root, dir), 0o755); err != nil {
			return err
		}
	}
	err := errors.Join(os.Chmod(filepath.Join(s.Root, "tmp"), 0o1777), os.Chmod(filepath.Join(s.Root, "var/tmp"), 0o1777),
		os.Symlink("../run", filepath.Join(s.Root, "var/run")), unix.Mount("proc", filepath.Join(s.Root, "proc"), "proc", 0, ""))
	if err != nil {
		return err
	}
	for _, name := range []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "sys"} {
		if to, err := os.Readlink("/" + name); err == nil {
			if err := os.Symlink(to, filepath.Join(s.Root, name)); err != nil {
				return err
			}
		} else if err := s.bind(Mount{"/" + name, "/" + name, true}); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	// Programs that the machine's operator installed do not belong to an image.
	if err := unix.Mount("tmpfs", filepath.Join(s.Root, "usr/local"), "tmpfs", 0, "mode=755"); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("/usr/local: %w", err)
	}
	for _, name := range etc {
		if err := s.bind(Mount{"/etc/" + name, "/etc/" + name, true}); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// devices creates /dev.
func (s Spec) devices() error {
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := s.bind(Mount{Source: "/dev/" + name, Target: "/dev/" + name}); err != nil {
			return err
		}
	}
	for _, dir := range []string{"dev/shm", "dev/pts", "dev/net"} {
		if err := os.MkdirAll(filepath.Join(s.Root, dir), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(unix.Mount("tmpfs", filepath.Join(s.Root, "dev/shm"), "tmpfs", 0, "mode=1777"),
		unix.Mount("devpts", filepath.Join(s.Root, "dev/pts"), "devpts", 0, "newinstance,ptmxmode=0666"),
		os.Symlink("pts/ptmx", filepath.Join(s.Root, "dev/ptmx")), os.Symlink("/proc/self/fd", filepath.Join(s.Root, "dev/fd")),
		os.Symlink("/proc/self/fd/0", filepath.Join(s.Root, "dev/stdin")), os.Symlink("/proc/self/fd/1", filepath.Join(s.Root, "dev/stdout")),
		os.Symlink("/proc/self/fd/2", filepath.Join(s.Root, "dev/stderr")))
}

func (s Spec) programs() error {
	for inside, local := range s.Programs {
		if err := s.bind(Mount{local, inside, true}); err != nil {
			return err
		}
	}
	return nil
}

// volumes mounts the volumes; an outer one precedes those inside of it.
func (s Spec) volumes() error {
	sorted := slices.Clone(s.Mounts)
	slices.SortStableFunc(sorted, func(a, b Mount) int {
		return strings.Count(filepath.Clean(a.Target), "/") - strings.Count(filepath.Clean(b.Target), "/")
	})
	for i, m := range sorted {
		if err := s.bind(m, sorted[i+1:]...); err != nil {
			return err
		}
	}
	return nil
}

// bind mounts a file or folder of the machine below the root. A read-only mount first gets the mount points of later
// mounts inside of it, as with kubelets (kubernetes pkg/volume/util: MakeNestedMountpoints).
func (s Spec) bind(m Mount, later ...Mount) error {
	target := filepath.Join(s.Root, m.Target)
	if err := s.mountPoint(m); err != nil {
		return err
	}
	if err := unix.Mount(m.Source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", m.Target, err)
	}
	if m.ReadOnly {
		for _, inner := range later {
			if strings.HasPrefix(filepath.Clean(inner.Target), filepath.Clean(m.Target)+"/") {
				if err := s.mountPoint(inner); err != nil {
					return err
				}
			}
		}
		if err := unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return fmt.Errorf("mount %s read-only: %w", m.Target, err)
		}
	}
	return nil
}

// mountPoint creates the file or folder for a mount.
func (s Spec) mountPoint(m Mount) error {
	info, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	target := filepath.Join(s.Root, m.Target)
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
		var f *os.File
		if f, err = os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("mount point %s: %w", m.Target, err)
	}
	return nil
}
