"""Minimal scripts with client libraries that run a command under a lock: what lockctl is compared with."""

from __future__ import annotations

SCRIPTS = {
    "kazoo script": """
import subprocess, sys
from kazoo.client import KazooClient
client = KazooClient(sys.argv[1])
client.start()
with client.Lock('/peer/' + sys.argv[2]):
    status = subprocess.call(sys.argv[3:])
client.stop()
sys.exit(status)
""",
    "psycopg2 script": """
import subprocess, sys
import psycopg2
with psycopg2.connect(sys.argv[1]) as connection, connection.cursor() as cursor:
    cursor.execute('select pg_advisory_lock(hashtext(%s))', [sys.argv[2]])
    status = subprocess.call(sys.argv[3:])
    cursor.execute('select pg_advisory_unlock(hashtext(%s))', [sys.argv[2]])
sys.exit(status)
""",
    "PyMySQL script": """
import subprocess, sys
import pymysql
host, port = sys.argv[1].split(':')
connection = pymysql.connect(host=host, port=int(port), user='lockctl', password='s3cret', database='lockctl')
with connection.cursor() as cursor:
    cursor.execute('select get_lock(%s, 60)', [sys.argv[2]])
    status = subprocess.call(sys.argv[3:])
    cursor.execute('select release_lock(%s)', [sys.argv[2]])
sys.exit(status)
""",
    "redis-py script": """
import subprocess, sys
import redis
with redis.Redis.from_url(sys.argv[1]).lock('peer-' + sys.argv[2], timeout=60):
    status = subprocess.call(sys.argv[3:])
sys.exit(status)
""",
}
# The requests of a run of lockctl, whose lock has been used before, by one connection that is kept: a lock is read, the
# name of the store is read, the lock is taken, given back, and a run is added to its history.
_RUN = """
def locked(read, write, words):
    lock, version = read('lock')
    while lock:
        time.sleep(0.1)
        lock, version = read('lock')
    read('domain')
    write('lock', version, 'held')
    status = subprocess.call(words)
    write('lock', read('lock')[1], '')
    past, version = read('past')
    write('past', version, (past + '.')[-100:])
    sys.exit(status)
"""
SCRIPTS["Azure script"] = f"""
import base64, email.utils, hashlib, hmac, http.client, subprocess, sys, time
{_RUN}
address, key = sys.argv[1].split()
connection = http.client.HTTPConnection(address)

def ask(method, name, body=b'', **fields):
    path = '/lockctl/locks/peer-' + sys.argv[2] + '-' + name
    fields = {{each.replace('_', '-'): text for each, text in fields.items()}}
    fields.update({{'x-ms-date': email.utils.formatdate(usegmt=True), 'x-ms-version': '2021-12-02'}})
    lines = [method, '', '', str(len(body) or ''), '', '', '', '']
    lines += [fields.get('if-match', ''), fields.get('if-none-match', ''), '', '']
    lines += [each + ':' + fields[each] for each in sorted(fields) if each.startswith('x-ms-')] + ['/lockctl' + path]
    digest = hmac.new(base64.b64decode(key), '\\n'.join(lines).encode(), hashlib.sha256).digest()
    fields['authorization'] = 'SharedKey lockctl:' + base64.b64encode(digest).decode()
    connection.request(method, path, body or None, fields)
    answer = connection.getresponse()
    return answer, answer.read()

def read(name):
    answer, body = ask('GET', name)
    return ('', None) if answer.status == 404 else (body.decode().strip(), answer.headers['etag'])

def write(name, version, text):
    condition = {{'if_match': version}} if version else {{'if_none_match': '*'}}
    answer, _ = ask('PUT', name, text.encode() + b'\\n', x_ms_blob_type='BlockBlob', **condition)
    assert answer.status == 201, answer.status

locked(read, write, sys.argv[3:])
"""
SCRIPTS["Google script"] = f"""
import http.client, json, subprocess, sys, time
{_RUN}
connection = http.client.HTTPConnection(sys.argv[1])

def ask(method, path, body=None, fields={{}}):
    connection.request(method, path, body, fields)
    answer = connection.getresponse()
    return answer, answer.read()

def read(name):
    answer, body = ask('GET', '/storage/v1/b/locks/o/peer-' + sys.argv[2] + '-' + name + '?alt=media')
    return ('', '0') if answer.status == 404 else (body.decode().strip(), answer.headers['x-goog-generation'])

def write(name, version, text):
    parts = json.dumps({{'name': 'peer-' + sys.argv[2] + '-' + name}}), text + '\\n'
    body = ''.join('--mark\\r\\nContent-Type: text/plain\\r\\n\\r\\n' + part + '\\r\\n' for part in parts) + '--mark--\\r\\n'
    target = '/upload/storage/v1/b/locks/o?uploadType=multipart&ifGenerationMatch=' + version
    answer, _ = ask('POST', target, body, {{'Content-Type': 'multipart/related; boundary=mark'}})
    assert answer.status == 200, answer.status

locked(read, write, sys.argv[3:])
"""
SCRIPTS["Kubernetes script"] = f"""
import http.client, json, subprocess, sys, time
{_RUN}
with open(sys.argv[1]) as file:
    config = json.load(file)
connection = http.client.HTTPConnection(config['clusters'][0]['cluster']['server'].partition('//')[2])
login = {{'Authorization': 'Bearer ' + config['users'][0]['user']['token'], 'Content-Type': 'application/json'}}
leases = '/apis/coordination.k8s.io/v1/namespaces/locks/leases'

def ask(method, path, document=None):
    connection.request(method, path, None if document is None else json.dumps(document), login)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())

def read(name):
    status, found = ask('GET', leases + '/peer-' + sys.argv[2] + '-' + name)
    if status == 404:
        return '', None
    return found['spec'].get('holderIdentity') or '', found['metadata']['resourceVersion']

def write(name, version, text):
    metadata = {{'name': 'peer-' + sys.argv[2] + '-' + name}}
    if version:
        metadata['resourceVersion'] = version
    lease = {{'apiVersion': 'coordination.k8s.io/v1', 'kind': 'Lease', 'metadata': metadata}}
    lease['spec'] = {{'holderIdentity': text}}
    target = leases + '/' + metadata['name'] if version else leases
    status, _ = ask('PUT' if version else 'POST', target, lease)
    assert status in (200, 201), status

locked(read, write, sys.argv[3:])
"""
