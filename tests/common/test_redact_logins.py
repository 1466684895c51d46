"""Passwords beside their user, and keys in what engines, proxies, units and schedulers print or are
told, as public reports and manuals have them; beside lines of the same shape that tell none."""

import pytest

from console.common import redact
from console.common.secrets import lines
from console.common.text import clean_lines

CHOSEN = ("hunter2", "s3cret", "Adm1n!")
MADE = ("Zq7canaryXw9k2LmPvB4nT6y", "k8sJ7dh2Ks9d", "9f86d081884c7d659a2feaa0c55ad015")
OWN = [
    "login: admin\npassword\n<V>", "login: admin\n<V>", "user: admin\npass:\n  <V>",
    "username: admin\npassword\n  <V>", "Login credentials:\n   admin / <V>",
    "LOGIN CREDENTIALS:\n   vishaal314 / <V>\n   demo / <V>",
    "Login credentials:\n  Admin:   admin / <V>",
    "Login Credentials:\nDispatcher: dispatcher@ex.com / <V>",
    "default username and password are both `<V>`",
    "Password for user admin@example.de  is **<V>** :point_left:",
    "EJABBERD_USERS=admin@example.de:<V>", "AccountingStoragePass=<V>",
    "secure_link_md5 \"$secure_link_expires$uri$remote_addr <V>\";", "secure_link_secret <V>;",
    "PIN: <V>", "OTP code: <V>", "your pin is <V>", "user admin pass <V>",
    "SET PASSWORD FOR 'root' = '<V>'", "AUTH <V>", "AUTH default <V>",
    "1700000000.1 [0 127.0.0.1:5000] \"AUTH\" \"<V>\"", "USER admin\nPASS <V>",
    "SASL_PASSWORD <V>", "smtp_pass = <V>", "ansible_ssh_pass=<V>", "ansible_become_pass: <V>",
    "unlock code <V>", "Initial admin password\n======\n<V>", "admin_pw: <V>", "Password> <V>",
    "user=\"admin\" pass=\"<V>\"", "echo <V> | docker login -u me --password-stdin",
    "echo '<V>' | sudo -S ls", "printf '<V>' | docker secret create db_password -",
]  # fmt: skip
"""With a short value that a person chose."""
WORDS = [
    "Default username and password (admin/<V>) should be changed",
    "default username and password is taichi/<V>",
    "Creating a new user: admin@example.com with password: <V>",
    "User admin created with password <V>",
    "Username: admin, E-Mail: a@b.c, Password: <V>, Token: 0123456789abcdef0123456789abcdef",
    "docker login -u kafnevod -p <V>", "docker login -u developer -p <V> 172.30.1.1:5000",
    "oc login -u developer -p <V>", "podman login -u me -p <V> quay.io",
    "redis-cli -h r -a <V> ping", "# requirepass <V>", "user admin insecure-password <V>",
    "    user my-user-1 insecure-password <V>", "auth user=admin pass=<V>",
    "ldapsearch -x -D cn=admin -w <V>", "CREATE USER bob WITH PASSWORD '<V>'",
]  # fmt: skip
"""Where a word in letters alone is hidden, too."""
KEYS = [
    "HfFolder.save_token('<V>')", "map $http_x_api_key $valid {\n  default 0;\n  \"<V>\" 1;\n}",
    "http-request set-var(txn.key) str(<V>)", "wandb: Appending key for api.wandb.ai: <V>",
    "Sec-WebSocket-Protocol: bearer, <V>", "Unauthorized key <V>", "virtual key created: <V>",
    "consul acl SecretID: <V>", "SecretID:       <V>", "Your API key: <V>", "API key <V>",
    "non-default args: {'model_tag': 'org/model', 'api_key': ['<V>'], 'port': 8000}",
    "args: Namespace(host=None, api_key='<V>', lora=None)",
    "server_args=ServerArgs(model_path='m', api_key='<V>', ssl_keyfile_password='<V>', port=1)",
    "server_args=ServerArgs(ssl_keyfile_password='<V>')", "main: setting api_keys: ****, <V>",
    "srv  main: api_keys: <V>", "api_keys: <V>,<V>", "LLAMA_ARG_API_KEY=<V>", "--api-key <V>",
    "hf auth login --token <V>", "huggingface-cli login --token <V>", "hf download m --token <V>",
    "login(token=\"<V>\")", "use_auth_token='<V>'", "headers={'Authorization': 'Bearer <V>'}",
    "snapshot_download(repo_id='m', token='<V>')", "Token is valid (permission: read). Token: <V>",
    "HUGGING_FACE_HUB_TOKEN <V>", "docker run -e HF_TOKEN=<V> vllm",
    "docker run --env API_KEY='<V>' x", "\"Env\": [\"HF_TOKEN=<V>\"]", "ENV API_KEY=\"<V>\"",
    "ARG TOKEN=<V>", "docker swarm join --token <V> 10.0.0.1:2377",
    "{\"auths\":{\"ghcr.io\":{\"auth\":\"<V>\"}}}", "\"identitytoken\": \"<V>\"",
    "\"registrytoken\":\"<V>\"", "set $api_key <V>;", "set $token \"<V>\";",
    "if ($http_authorization != \"Bearer <V>\") {", "if ($arg_key != <V>) {",
    "proxy_set_header Authorization \"Bearer <V>\";", "more_set_input_headers 'X-Api-Key: <V>';",
    "proxy_set_header X-Token <V>;", "add_header X-Auth-Token <V>;",
    "http-request deny unless { req.hdr(x-api-key) -m str <V> }",
    "acl key_ok hdr(X-Api-Key) -i <V>", "http-request set-header Authorization \"Bearer <V>\"",
    "acl ok req.hdr(Authorization) -m sub <V>", "Environment=HF_TOKEN=<V>",
    "Environment=\"API_KEY=<V>\" \"B=c\"", "SetCredential=apikey:<V>",
    "SetCredentialEncrypted=key: <V>", "ExecStart=/usr/bin/vllm serve m --api-key <V>",
    "PassEnvironment= HF_TOKEN=<V>", "systemd-creds: password=<V>",
    "slurmrestd: X-SLURM-USER-TOKEN: <V>", "SLURM_JWT=<V>", "X-SLURM-USER-TOKEN:<V>",
    "export SLURM_JWT=<V>", "srun --export=ALL,HF_TOKEN=<V> vllm",
    "sbatch --export=API_KEY=<V>,B=1 x", "jwt_key=<V>", "AuthAltParameters=jwt_key=<V>",
    "WANDB_API_KEY <V>", "wandb login <V>", "wandb login --relogin <V>",
    "ngrok config add-authtoken <V>", "ngrok authtoken <V>", "tailscale up --authkey <V>",
    "tailscale up --auth-key=<V>", "cloudflared tunnel run --token <V>",
    "cloudflared service install <V>",
    "kubeadm join 10.0.0.1:6443 --token <V> --discovery-token-ca-cert-hash sha256:00",
]  # fmt: skip
"""With a value that a machine made."""
STAYS = [
    "user: root", "login: admin\nready", "login: admin\nloading model",
    "User: slurm\nPartition: gpu", "Username: bob\nqwen2-7b", "login: admin\n> ",
    "account: default\nqos1", "user=1000\ngid=1000", "USER root\nWORKDIR /app2",
    "USER app\nCOPY a1 b2", "USER 1000:1000", "USER=www-data:www-data", "ALLOWED_USERS=12:30",
    "Login succeeded\nabc123def", "user authentication failed, password: required",
    "user bob: password: wrong", "user login with password authentication",
    "username=bob pass=3 fail=0", "user tests: 12 passed, pass: 12, fail: 0",
    "login as user bob, password expired", "account created with password authentication",
    "user root password changed", "user admin password reset",
    "user name and password are both required", "username and password are both missing",
    "username and password or token/key", "Password for user bob is not set",
    "password for user bob is required", "forward_pass=kernel12", "backward_pass: fused2",
    "first_pass=stage1", "num_pass: 12", "n_pass=3", "prefill_pass=fa3", "web_pass=true",
    "user_pass: null", "compiler pass fuse_attention2", "Running pass RemoveNoops2 on graph",
    "pass stage1 of 3", "2nd pass: 12.3 s", "pass rate: 99 %", "PASS test_a12", "PASS tests/a1.js",
    "ok: pass=12 fail=0", "passwd: files systemd", "passwd root2", "-P 8080 --user x",
    "auth_basic_user_file /etc/nginx/.htpasswd;", "auth_request /auth2;", "AUTH OK", "AUTH LOGIN",
    "AUTH PLAIN", "\"auth\" \"none\"", "[auth] using munge2", "AuthType=auth/munge",
    "AuthInfo=cred_expire=300", "secure_link $arg_st,$arg_e;",
    "secure_link_md5 \"$secure_link_expires$uri\";", "if ($arg_key != \"\") {",
    "if ($http_authorization = '') {", "if ($arg_token = $cookie_token) {",
    "map $http_upgrade $connection_upgrade {\n  default upgrade;\n  '' close;\n}",
    "map $http_x_api_key $valid {\n  default 0;\n}",
    "map $http_accept $a {\n  \"text/html2\" 1;\n}", "set-var(txn.key) src",
    "http-request set-var(txn.auth) bool(true)", "exit code: 137", "error code: E1234ab",
    "status code 200", "unlock code path", "login code: none", "pin: true", "pin: 0-7", "pin: 12",
    "mapping: 1234", "spin is 12345", "verification code: sent", "exit code 139",
    "login code is required", "echo ok | grep ok", "echo hello | docker run -i x",
    "printf '%s' $X | docker login --password-stdin",
    "echo $TOKEN | docker login -u me --password-stdin", "cat key | docker login --password-stdin",
    "HF_TOKEN is not set", "HF_TOKEN env2", "EOS_TOKEN 151645a", "MAX_TOKEN 4096tok",
    "MY_PASSWORD not given", "TOKEN hello12", "tokenizer.ggml.eos_token_id u32 = 151645",
    "general.name: Qwen2.5 7B Instruct", "general.architecture str = qwen2",
    "tokenizer.ggml.pre: qwen2", "general.license: apache-2.0",
    "quantize.imatrix.file str = /t/imatrix12.dat", "token: 12345, id: ab12cd34",
    "key blk.0.attn_k.weight", "unknown key blk.12.ffn_up.weight", "key: llama.rope.freq_base",
    "rejected token 151645", "expired key blk0", "rejected token Washington7",
    "key for layer.attn.norm: 12", "token for model.layers.12: 3", "51.84 tokens per second",
    "gen throughput (token/s): 312.11, #queue-req: 0",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "commit 9f86d081884c7d659a2feaa0c55ad015",
    "/models/qwen2.5-7b/model-00001-of-00004.safetensors", "image: vllm/vllm-openai:v0.11.0",
    "project key created: none", "team token issued: 12", "user key generated: yes",
    "Slurm job 1234 user alice account ml-train2 partition gpu", "StorageUser=slurm2",
    "AccountingStorageHost=db1", "AccountingStoragePass=none",
    "JobAcctGatherType=jobacct_gather/cgroup2", "Authentication: password: enabled",
    "set_tokenizer('qwen2')", "use_token(12)", "set_key('layer12')", "store_token(id=12)",
    "secret_id: none", "Login Credentials:\n  see /etc/omni/README2.md",
    "Login credentials:\n  none", "Credentials:\n- vllm / sglang\n", "Access token\n------\nready",
    "model=user2/pass-7b", "user pass: 12 of 12 tests", "login shell: /bin/bash2",
    "user pw: unset", "http_pass: off", "loginctl: user 1000 pass2", "docker login -p is insecure",
    "mysql -p prompts", "sshpass -p needs a password", "redis-cli -a <password>", "curl -u user:",
    "zip -P is weak", "`docker login -u` succeeded", "mongosh -p prompts for it",
    "user: alice\npass: 12 of 12", "user: alice\npasses", "Email: a@b.c\nprefix123",
    "username: admin\npassword: *****\nserver2ready", "e-mail: a@b.c\nAccount1 created",
    "Password>", "Password> \n", "Enter password> failed",
]  # fmt: skip
"""Healthy lines that look like these."""


@pytest.mark.parametrize("form", OWN)
def test_a_short_password_beside_its_user_is_hidden(form: str) -> None:
    for value in CHOSEN:
        _is_hidden(form, value)


@pytest.mark.parametrize("form", WORDS)
def test_a_word_is_hidden_where_nothing_else_can_stand(form: str) -> None:
    _is_hidden(form, "swordfish")


@pytest.mark.parametrize("form", KEYS)
def test_a_key_in_what_servers_and_tools_say_is_hidden(form: str) -> None:
    for value in MADE:
        _is_hidden(form, value)


def _is_hidden(form: str, value: str) -> None:
    said = form.replace("<V>", value)
    shown = redact.text(said)
    assert value not in shown
    assert redact.HIDDEN in shown
    assert redact.text(shown) == shown
    stream = lines.Stream()
    assert value not in "".join(stream.shown(redact.text(row)) for row in said.split("\n"))


@pytest.mark.parametrize("text", STAYS)
def test_healthy_lines_of_the_same_shape_stay(text: str) -> None:
    assert redact.text(text) == text


@pytest.mark.parametrize("prefix", ["INFO 11-29 13:00:01 [init.py:1] ", "[init] ", "INFO:     "])
def test_a_password_below_its_user_is_hidden_behind_the_prefix_of_a_logger(prefix: str) -> None:
    for below in ("password\n@", "pass:\n@", "password: @", "@"):
        rows = ["login: admin", *below.replace("@", "hunter2").split("\n")]
        said = "\n".join(prefix + row for row in rows)
        assert "hunter2" not in "\n".join(clean_lines(said)), below
