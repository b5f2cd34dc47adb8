// Package volume creates the volumes of a Pod as folders: emptyDir, ConfigMap, Secret, downward API, projected volumes
// with tokens of the TokenRequest API, claims of persistent volumes, and paths of the machine. It keeps them up to
// date: files are replaced atomically, as in the kubelet, and tokens are renewed before they expire.
//
// Owns: one folder for each Pod. Reads: ConfigMaps, Secrets, claims and tokens, through the functions of Source. Never:
// mounts anything; accepts other kinds of volumes (they are refused by name).
package volume

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"navarch.io/navarch/deploy/testcluster/container"
	"navarch.io/navarch/deploy/testcluster/podenv"
)

// Source returns the content of volumes.
type Source struct {
	podenv.Source
	// Token requests a token of the Pod's account that is bound to the Pod; ends is the time of its expiry.
	Token func(ctx context.Context, pod *corev1.Pod, audience string, seconds int64) (token string, ends time.Time, err error)
	// Claim returns the folder of the volume that a PersistentVolumeClaim is bound to; the folder's parent exists. The
	// error reports that the claim is not bound yet.
	Claim func(namespace, name string) (dir string, err error)
}

type token struct {
	text        string
	renew, ends time.Time
}

// Set is the volumes of one Pod.
type Set struct {
	dir    string
	from   Source
	now    map[string]files // written files, by volume
	tokens map[string]token // by volume and path
}

// New returns the volumes of a Pod below dir, which belongs to the set. The first Sync creates them.
func New(dir string, from Source) *Set {
	return &Set{dir: dir, from: from, now: map[string]files{}, tokens: map[string]token{}}
}

// Sync creates all volumes, or updates them. renew is the time at which the next token must be renewed; zero: no token.
// The error names the volume whose content is missing; existing content stays.
func (s *Set) Sync(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus, now time.Time) (renew time.Time, err error) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		all, plain, err := s.files(ctx, pod, status, v, now)
		if err != nil {
			return renew, fmt.Errorf("MountVolume.SetUp failed for volume %q: %w", v.Name, err)
		}
		if plain {
			continue
		}
		if old, ok := s.now[v.Name]; ok && maps.Equal(old, all) {
			continue
		}
		if err := replace(filepath.Join(s.dir, v.Name), all, group(pod)); err != nil {
			return renew, err
		}
		s.now[v.Name] = all
	}
	for _, t := range s.tokens {
		if renew.IsZero() || t.renew.Before(renew) {
			renew = t.renew
		}
	}
	return renew, nil
}

// group returns the Pod's fsGroup, or -1.
func group(pod *corev1.Pod) int {
	if c := pod.Spec.SecurityContext; c != nil && c.FSGroup != nil {
		return int(*c.FSGroup)
	}
	return -1
}

// files returns the files of a volume; plain means that its folder exists and contains no files of ours.
func (s *Set) files(
	ctx context.Context, pod *corev1.Pod, status corev1.PodStatus, v *corev1.Volume, now time.Time,
) (all files, plain bool, err error) {
	all = files{}
	switch {
	case v.EmptyDir != nil:
		return nil, true, makeEmpty(filepath.Join(s.dir, v.Name), group(pod))
	case v.HostPath != nil:
		return nil, true, hostPath(v.HostPath)
	case v.PersistentVolumeClaim != nil:
		return nil, true, s.claim(pod, v)
	case v.ConfigMap != nil:
		err = all.configMap(pod.Namespace, v.ConfigMap.Name,
			v.ConfigMap.Items, modeOr(v.ConfigMap.DefaultMode, 0o644), v.ConfigMap.Optional, s.from.Source)
	case v.Secret != nil:
		err = all.secret(pod.Namespace, v.Secret.SecretName,
			v.Secret.Items, modeOr(v.Secret.DefaultMode, 0o644), v.Secret.Optional, s.from.Source)
	case v.DownwardAPI != nil:
		err = all.downward(pod, status, v.DownwardAPI.Items, modeOr(v.DownwardAPI.DefaultMode, 0o644))
	case v.Projected != nil:
		mode := modeOr(v.Projected.DefaultMode, 0o644)
		for i := range v.Projected.Sources {
			if err = s.projected(ctx, pod, status, v.Name, &v.Projected.Sources[i], mode, all, now); err != nil {
				break
			}
		}
	default:
		err = fmt.Errorf("volumes of its kind are not supported by the cluster of processes")
	}
	return all, false, err
}

// projected adds the files of one source of a projected volume.
func (s *Set) projected(
	ctx context.Context, pod *corev1.Pod, status corev1.PodStatus, volume string, p *corev1.VolumeProjection,
	mode os.FileMode, all files, now time.Time,
) error {
	switch {
	case p.ConfigMap != nil:
		return all.configMap(pod.Namespace, p.ConfigMap.Name, p.ConfigMap.Items, mode, p.ConfigMap.Optional, s.from.Source)
	case p.Secret != nil:
		return all.secret(pod.Namespace, p.Secret.Name, p.Secret.Items, mode, p.Secret.Optional, s.from.Source)
	case p.DownwardAPI != nil:
		return all.downward(pod, status, p.DownwardAPI.Items, mode)
	case p.ServiceAccountToken != nil:
		text, err := s.token(ctx, pod, volume, p.ServiceAccountToken, now)
		if err != nil {
			return err
		}
		return all.add(p.ServiceAccountToken.Path, text, nil, mode)
	}
	return fmt.Errorf("projections of its kind are not supported by the cluster of processes")
}

// token returns a token that is valid for a while. It is renewed after four fifths of its lifetime, or after a day; if
// that fails, the old token stays in use while it is valid.
func (s *Set) token(
	ctx context.Context, pod *corev1.Pod, volume string, p *corev1.ServiceAccountTokenProjection, now time.Time,
) (string, error) {
	key := volume + "/" + p.Path
	t, ok := s.tokens[key]
	if ok && now.Before(t.renew) {
		return t.text, nil
	}
	seconds := int64(3600)
	if p.ExpirationSeconds != nil {
		seconds = *p.ExpirationSeconds
	}
	text, ends, err := s.from.Token(ctx, pod, p.Audience, seconds)
	if err != nil {
		if ok && now.Before(t.ends) {
			return t.text, nil
		}
		return "", fmt.Errorf("failed to fetch token: %w", err)
	}
	s.tokens[key] = token{text, now.Add(min(ends.Sub(now)*4/5, 24*time.Hour)), ends}
	return text, nil
}

// claim creates a link to the folder of a claim's volume, and creates the folder for the volume's first Pod. The volume
// of a Pod never changes.
func (s *Set) claim(pod *corev1.Pod, v *corev1.Volume) error {
	link := filepath.Join(s.dir, v.Name)
	if _, err := os.Lstat(link); err == nil {
		return nil
	}
	dir, err := s.from.Claim(pod.Namespace, v.PersistentVolumeClaim.ClaimName)
	if err != nil {
		return err
	}
	if err := makeEmpty(dir, group(pod)); err != nil {
		return err
	}
	return os.Symlink(dir, link)
}

// makeEmpty creates an emptyDir unless it exists.
func makeEmpty(dir string, group int) error {
	if err := os.Mkdir(dir, 0o777); err != nil {
		if os.IsExist(err) {
			return nil
		}
		return err
	}
	mode := os.FileMode(0o777)
	if group >= 0 {
		mode |= os.ModeSetgid
		if err := os.Chown(dir, -1, group); err != nil {
			return err
		}
	}
	return os.Chmod(dir, mode)
}

func hostPath(h *corev1.HostPathVolumeSource) error {
	if t := h.Type; t != nil && *t == corev1.HostPathDirectoryOrCreate {
		return fmt.Errorf("hostPath of type DirectoryOrCreate: nothing of the machine is made")
	}
	_, err := os.Stat(h.Path)
	return err
}

// replace writes the files of a volume into a new folder, and then switches ..data to it, so that readers see all old
// or all new files.
func replace(dir string, all files, group int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := os.MkdirTemp(dir, "..")
	if err != nil {
		return err
	}
	if err := os.Chmod(data, 0o755); err != nil {
		return err
	}
	old, _ := os.Readlink(filepath.Join(dir, "..data")) // absent at first
	for name, f := range all {
		if err := write(filepath.Join(data, name), f, group); err != nil {
			return err
		}
		top, _, _ := strings.Cut(name, "/")
		if err := os.Symlink(filepath.Join("..data", top), filepath.Join(dir, top)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	next := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(filepath.Base(data), next); err != nil {
		return err
	}
	if err := os.Rename(next, filepath.Join(dir, "..data")); err != nil {
		return err
	}
	if old == "" {
		return nil
	}
	return clean(dir, old, all)
}

// clean removes the old files, and links without a target.
func clean(dir, old string, all files) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		used := false
		for name := range all {
			top, _, _ := strings.Cut(name, "/")
			used = used || top == e.Name()
		}
		if e.Type()&fs.ModeSymlink != 0 && e.Name() != "..data" && !used {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(filepath.Join(dir, old))
}

func write(path string, f file, group int) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(f.data), 0o600); err != nil {
		return err
	}
	mode := f.mode
	if group >= 0 {
		if err := os.Chown(path, -1, group); err != nil {
			return err
		}
		mode |= 0o440
	}
	return os.Chmod(path, mode)
}

// Mounts returns the mounts of a container; env expands subPathExpr. The error reports that a subPath leaves its
// volume, or that its folder cannot be created.
func (s *Set) Mounts(pod *corev1.Pod, c *corev1.Container, env []string) ([]container.Mount, error) {
	var all []container.Mount
	for _, m := range c.VolumeMounts {
		source := filepath.Join(s.dir, m.Name)
		readOnly := m.ReadOnly
		for _, v := range pod.Spec.Volumes {
			if v.Name != m.Name {
				continue
			}
			if v.HostPath != nil {
				source = v.HostPath.Path
			}
			if c := v.PersistentVolumeClaim; c != nil {
				readOnly = readOnly || c.ReadOnly
			}
			readOnly = readOnly || v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = podenv.ExpandAll([]string{m.SubPathExpr}, env)[0]
		}
		if sub != "" {
			if !filepath.IsLocal(sub) {
				return nil, fmt.Errorf("subPath %q leaves its volume", sub)
			}
			source = filepath.Join(source, sub)
			if _, err := os.Stat(source); os.IsNotExist(err) && !readOnly {
				if err := os.MkdirAll(source, 0o777); err != nil {
					return nil, err
				}
			}
		}
		all = append(all, container.Mount{Source: source, Target: m.MountPath, ReadOnly: readOnly})
	}
	return all, nil
}
