#!/usr/bin/env python3
"""Says what of the differences from istiod is explained, and that all of it is.

    compare.py SHARED|testdata/gateways.tar.xz navarchctl

SHARED is a folder with the comparison's compare.py and its cases: of sidecars in cases, of gateways in gateway. The archive has those of gateways with
Istio's Gateways. Each difference that the comparison does not count as harmless belongs to the first line of differences.txt, or of gateways.txt (beside
this file), that matches it. Prints how many resources are equivalent by the comparison alone, and with the lines of one class after the other.
Status 1, with what is wrong, where a difference belongs to no line, or a line has other places than it says. A Secret that istiod refused and we
answer belongs to no line whatever: it is a key in wrong hands.
"""
import collections, glob, gzip, importlib.util, json, os, re, sys, tarfile, tempfile

SIDECARS, GATEWAYS = ('cases/*/*', 'differences.txt', ('clusters', 'endpoints', 'listeners', 'routes')), \
    ('gateway/istio-*', 'gateways.txt', ('clusters', 'endpoints', 'listeners', 'routes', 'secrets'))


def differences(compare, ctl, folders, types):
    """Yields (path, (case, proxy, type, resource), identities) of each difference, and (None, .., '') for each resource that istiod sent."""
    for folder in folders:
        case = os.path.relpath(folder, compare.HERE).removeprefix('cases/')
        flags = json.load(open(folder + '/env.json')) if os.path.exists(folder + '/env.json') else {}
        for name, node in json.load(gzip.open(folder + '/reference.json.gz')).items():
            ours = compare.render(ctl, folder + '/objects.json', node['node'], flags)
            for kind in types:
                want, got = node['want'].get(kind, {}), ours.get(kind, {})
                if kind == 'secrets':
                    want, got = ({name: compare.unkeyed(one) for name, one in all.items() if compare.unkeyed(one)} for all in (want, got))
                for resource in sorted(set(want) | set(got)):
                    yield from of(compare, (case, name, kind, resource), want.get(resource), got.get(resource), node['node']['id'].startswith('router~'))


def of(compare, key, want, got, router):
    if want is not None:
        yield None, key, ''
    if want is None or got is None:
        yield ' EXTRA' if want is None else ' MISSING', key, changed(want, got)
        return
    if router:
        want, got = (alike(key[2], one) for one in (want, got))
        for mark in sorted(want[1] ^ got[1]):
            yield mark, key, ''
        want, got = want[0], got[0]
    found = []
    compare.diff('', compare.clean(want), compare.clean(got), found)
    for path, a, b in found:
        if not compare.benign(key[2], key[3], path, (a, b), router):
            name = re.search(IDENTIFIES.pattern + r'(?=[.\[]|$)', path)
            yield path, key, changed(a, b, name is not None)


def alike(kind, resource):
    """A resource of a router in a form in which three differences are marks, and hide no others: ' shared', names that share a virtual host (each
    gets one of its own here); ' unreachable', routes behind one that takes all requests; ' empty', localities without endpoints."""
    resource, marks = json.loads(json.dumps(resource)), set()
    if kind == 'endpoints':
        full = [one for one in resource.get('endpoints', []) if one.get('lb_endpoints')]
        if len(full) < len(resource.get('endpoints', [])):
            marks.add(' empty')
        resource['endpoints'] = full
    if kind == 'routes':
        apart = []
        for host in resource.get('virtual_hosts', []):
            routes = host.get('routes', [])
            last = next((i for i, route in enumerate(routes) if takes_all(route['match'])), len(routes))
            if len(routes) > last + 1:
                marks.add(' unreachable')
                host['routes'] = routes[:last + 1]
            if len(host['domains']) == 1 or host['name'].startswith('misdirected:'):
                apart.append(host)
                continue
            marks.add(' shared')
            port = host['name'].rpartition(':')[2]
            apart += [{**host, 'name': f'{name}:{port}', 'domains': [name]} for name in host['domains']]
        resource['virtual_hosts'] = sorted(apart, key=lambda host: host['name'])
    return resource, marks


def takes_all(match):
    """Whether a match of a route takes all requests."""
    path = {name: value for name, value in match.items() if name != 'case_sensitive'}
    return path in ({'prefix': '/'}, {'safe_regex': {'regex': '.*'}})


# Fields whose texts identify a peer: names in its certificate, principals of RBAC.
IDENTIFIES = re.compile('(match_subject_alt_names|match_typed_subject_alt_names|principals|principal_name|and_ids|or_ids|not_id)')


def changed(want, got, within=False):
    """The identities that are in one value alone, such as "-exact spiffe://a +prefix spiffe://b/"; empty: none is."""
    a, b = set(identities(want, within)), set(identities(got, within))
    return ' '.join(['-' + one for one in sorted(a - b)] + ['+' + one for one in sorted(b - a)])


def identities(value, within, kind=''):
    """Yields the matcher and the text of each identity; the value is, or is not, within a field that identifies a peer."""
    if isinstance(value, str) and value[:1] in '{[' and within:  # an element of a set, as the comparison writes it
        try:
            value = json.loads(value)
        except ValueError:
            pass
    if isinstance(value, dict):
        for name, one in value.items():
            yield from identities(one, within or IDENTIFIES.fullmatch(name) is not None, name)
    elif isinstance(value, list):
        for one in value:
            yield from identities(one, within, kind)
    elif isinstance(value, str) and (within or 'spiffe://' in value):
        yield f'{kind} {value}'


def read(path):
    lines = [line.rstrip('\n').split('\t') for line in open(path) if line.strip() and not line.startswith('#')]
    return [(kind, int(places), *map(re.compile, split(pattern)), why) for kind, places, pattern, why, *_ in lines]


def split(pattern):
    """The expression of places, and that of all of the identities that differ there: none, where it says nothing of them."""
    places, _, named = pattern.partition(' => ')
    return places, named


def main(shared, ctl):
    sys.dont_write_bytecode = True  # SHARED stays as it is
    with tempfile.TemporaryDirectory() as unpacked:
        if os.path.isfile(shared):
            with tarfile.open(shared) as archive:
                archive.extractall(unpacked)
            shared = unpacked
        spec = importlib.util.spec_from_file_location('compare', os.path.join(shared, 'compare.py'))
        compare = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(compare)
        wrong = []
        for cases, lines, types in (SIDECARS, GATEWAYS):
            folders = sorted(map(os.path.dirname, glob.glob(f'{shared}/{cases}/reference.json.gz')))
            if folders:
                print(f'{cases}: {len(folders)} configurations')
                wrong += explained(read(os.path.join(os.path.dirname(os.path.abspath(__file__)), lines)), differences(compare, ctl, folders, types))
    for one in wrong:
        print(one)
    return 1 if wrong else 0


def explained(lines, found):
    """What is wrong with the lines and the differences. Prints the shares that are equivalent."""
    counted, wrong = collections.Counter(), []
    sent, differ = set(), collections.defaultdict(set)
    for path, key, identity in found:
        if path is None:
            sent.add(key)
            continue
        text = f'{key[0]} {key[2]} {key[3]}{path}'
        line = next((i for i, one in enumerate(lines) if one[2].search(text) and one[3].fullmatch(identity)), None)
        if key[2] == 'secrets' and path == ' EXTRA':
            line = None
        if line is None:
            wrong.append(f'nothing explains {text} => {identity}' if identity else f'nothing explains {text}')
        counted[line] += 1
        differ[key].add('unexplained' if line is None else lines[line][0])
    for i, (kind, places, pattern, _, _) in enumerate(lines):
        if counted[i] != places:
            wrong.append(f'{counted[i]} places, not {places}: {kind} {pattern.pattern}')
    kinds = set()
    for kind in ('equivalent', *dict.fromkeys(line[0] for line in lines)):
        kinds.add(kind)
        good = sum(1 for key in sent if differ[key] <= kinds)
        print(f'{kind:10} {100 * good / len(sent):5.1f} %  {good} of {len(sent)}')
    return wrong


if __name__ == '__main__':
    if len(sys.argv) != 3:
        print(__doc__)
        sys.exit(2)
    sys.exit(main(*sys.argv[1:]))
